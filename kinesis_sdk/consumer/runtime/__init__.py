"""Threads of a worker, and the scheduler that shares them out."""
