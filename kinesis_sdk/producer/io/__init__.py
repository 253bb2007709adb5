"""Threads and calls: the I/O loop, the sender pool, and the completion of records."""
