"""Runtime of a worker: its threads, the scheduler that shares them out, and `Runtime`, the interface to both."""
