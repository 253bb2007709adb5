"""The fake services over HTTP/1.1: the server, its wire formats, and a process of its own."""
