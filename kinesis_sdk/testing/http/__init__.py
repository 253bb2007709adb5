"""The fake services over HTTP/1.1 and HTTP/2, with and without TLS: the server, its wire formats, and a separate process for it."""
