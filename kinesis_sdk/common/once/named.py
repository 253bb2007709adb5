"""Names of the user records in an aggregate, as identities."""

from __future__ import annotations

from kinesis_sdk.common.aggregate_reader import has_outside, open_aggregate
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.once.table import NAMED, decode_table


def named_identities(data: bytes, stream_name: str, owned: HashKeyRange) -> list[tuple[bytes, int]]:
    """Return the identities of the records that an application named: 8 bytes, and a number below 2^48.

    Args:
        data: Payload of a Kinesis record; it may be forged.
        stream_name: Name of the stream that it was read from, not its ARN.
        owned: Hash keys of the shard that it was read from.

    Returns:
        An empty list if the record is not an aggregate, was written for another stream, or is misplaced: readers drop all of an
        aggregate with a user record outside the shard.
    """
    columns = open_aggregate(data)
    if columns is None or columns.tag is None:
        return []
    table = decode_table(columns.tag, stream_name, len(columns.payloads))
    if table is None or has_outside(columns, owned):
        return []
    return [(run.incarnation, run.number) for run in table.runs if run.flags & NAMED]
