"""The demo: produces records, consumes them during a split and a crash, and accounts for every record. ``kinesis-sdk demo`` runs it.

`runner` runs it, `worker_process` is a consumer process, `workers` controls these processes, `report` prints the result.
The accounting itself is in `kinesis_sdk.testing.accounting`.
"""
