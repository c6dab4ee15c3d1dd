"""The client's side of one connection, for tools that also say what no client should. No sockets."""
