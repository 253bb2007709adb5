"""Interoperation with Java KCL workers: leader lock, worker metrics, and migration from KCL 2.x to 3.x."""
