"""Threads and calls: the I/O loop, the sender pool, the end of records."""
