"""Drawn content of GetRecords responses, and its meaning."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kinesis_sdk.common.transport import decoding

moments = (
    st.integers(0, 4 * 10**12).map(lambda millis: millis / 1000)
    | st.integers(0, 4 * 10**9)
    | st.just("2026-08-01T10:00:00Z")
    | st.none()
)
wire_items = st.fixed_dictionaries(
    {"SequenceNumber": st.integers(0, 10**56).map(str), "Data": st.binary(max_size=40)},
    optional={
        "PartitionKey": st.text(max_size=8) | st.none(),
        "ApproximateArrivalTimestamp": moments,
        "EncryptionType": st.sampled_from(["NONE", "KMS", None]),
        "SomethingNew": st.none() | st.integers(),
    },
)
child_shards = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "ShardId": st.just("shardId-000000000001"),
            "ParentShards": st.lists(st.just("shardId-000000000000"), max_size=2),
            "HashKeyRange": st.just({"StartingHashKey": "0", "EndingHashKey": "9"}),
        }
    ),
    max_size=2,
)


def meaning(found: Any) -> Any:
    """What a page is made from: members that are absent or null say the same, and unknown ones nothing."""
    if not isinstance(found, decoding.Content):
        return found
    known = ("Records", "NextShardIterator", "MillisBehindLatest", "ChildShards")
    return found.records, {name: found.rest[name] for name in known if found.rest.get(name) is not None}
