"""Accounting of runs: every record that was put, compared with every record that was processed.

A run has producer and worker processes. Each process logs its actions, and these logs are compared after the run:

- `delivery_log` writes and reads the logs of worker processes: one JSON line for each batch, written before the batch can be
  checkpointed, so the log of a killed worker covers everything that it checkpointed.
- `verify` compares the producer's results with these deliveries. It finds lost records, looks for the reason of every duplicate, and
  checks the order of each partition key. It is pure.
- `stored_copies` reads a whole stream and returns the position at which readers deliver each record, even if idempotent producers stored
  some records more than once.
- `percentiles` summarizes measured times.

`kinesis-sdk demo` uses this package, and so do the end-to-end tests, which add checks of leases and checkpoints.
"""
