"""Columns of a read, by name and type, and the identity of its rows.

This module imports nothing, because every process of a query needs the columns.
"""

from __future__ import annotations

COLUMNS = (
    ("data", "binary"),
    ("partitionKey", "string"),
    ("sequenceNumber", "string"),
    ("subSequenceNumber", "long"),
    ("approximateArrivalTimestamp", "timestamp"),
    ("shardId", "string"),
    ("streamName", "string"),
    ("explicitHashKey", "string"),
)
"""Names and Spark types. ``subSequenceNumber`` is null for a record that was not aggregated; ``partitionKey`` is null for a record that
was put without a key into a stream that distributes records itself.
"""

HEADERS = ("headers", "map<string,binary>")
"""The additional column of the option ``includeHeaders``: headers of the record; empty if it has no headers."""

COLUMN_NAMES = tuple(name for name, _ in COLUMNS)

DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
"""The schema in Spark's notation."""

RECORD_ID = "concat_ws('/', streamName, shardId, sequenceNumber, coalesce(subSequenceNumber, 0))"
"""The identity of a row as an expression of Spark SQL: its value is the same text as ``record.id`` in a worker.

    frame.selectExpr("*", f"{RECORD_ID} AS recordId").dropDuplicates(["recordId"])
"""
