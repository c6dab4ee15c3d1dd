"""Who is connected to the sockets, and what ZeroMQ holds for each of them."""
