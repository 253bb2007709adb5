"""Runtime of a worker: its threads, the scheduler of their work, and `Runtime`, the interface to both."""
