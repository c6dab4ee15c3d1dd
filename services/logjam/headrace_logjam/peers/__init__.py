"""The clients that may connect to the sockets, those that are connected, and the messages that ZeroMQ holds for each."""
