"""Names of the user records in an aggregate, as identities."""

from __future__ import annotations

from kinesis_sdk.common.aggregate_reader import open_aggregate
from kinesis_sdk.common.once.table import NAMED, decode_table


def named_identities(data: bytes, stream_name: str) -> list[tuple[bytes, int]]:
    """Return the identities of the records that an application named: 8 bytes, and a number below 2^48.

    Args:
        data: Payload of a Kinesis record, from anywhere.
        stream_name: Name of the stream that it was read from, not its ARN.

    Returns:
        An empty list if the record is not an aggregate, or was written for another stream.
    """
    columns = open_aggregate(data)
    if columns is None or columns.tag is None:
        return []
    table = decode_table(columns.tag, stream_name, len(columns.payloads))
    return [] if table is None else [(run.incarnation, run.number) for run in table.runs if run.flags & NAMED]
