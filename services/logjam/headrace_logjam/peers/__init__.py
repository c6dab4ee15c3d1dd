"""Who may connect to the sockets, who is connected, and what ZeroMQ holds for each of them."""
