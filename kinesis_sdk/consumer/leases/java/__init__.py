"""Working beside Java KCL workers: their leader lock, their worker metrics, and their migration."""
