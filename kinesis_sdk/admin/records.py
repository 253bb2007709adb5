"""Records of a shard, page by page: for a record browser, and to inspect a moment of the past.

To read a whole window of a stream, or to follow it, see `kinesis_sdk.admin.reading`.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.payload import decode_payload
from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.codec import locating
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import AfterSequence, Ended, Latest, Position
from kinesis_sdk.common.position_text import format_position, parse_position
from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.response_header import NO_RESPONSE
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shard_cursor import ShardCursor
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage
from kinesis_sdk.common.validation import check_int

MAX_PAGE = 10_000
"""Maximum user records of a page."""
PAGE_READS = 4
"""Maximum GetRecords calls for a page. Kinesis may return an empty page although there are later records."""
_READ_PAUSE = 0.25
"""Seconds between two GetRecords calls of one page: four of the five calls per second that all readers of a shard share."""


@dataclass(frozen=True, kw_only=True)
class RecordPage:
    """Some records of a shard.

    Attributes:
        shard_id: The shard.
        records: User records in the order of the shard; aggregates are opened.
        next_position: Where the next page begins; `Ended` at the end of the shard.
        millis_behind_latest: How far the end of the page is behind the tip of the shard, as Kinesis reported it; 0 at the tip,
            None if Kinesis reports none.
        at_tip: Whether no records followed the page when it was read.
        iterator: Iterator to pass to `read_page` with the next position, if the page is empty although there may be more records;
            otherwise None.
        children: Ids of the child shards, at the end of the shard.
        reads: GetRecords calls that were made.
    """

    shard_id: str
    records: tuple[UserRecord, ...]
    next_position: Position
    millis_behind_latest: int | None
    at_tip: bool
    iterator: str | None = field(default=None, repr=False)
    children: tuple[str, ...] = ()
    reads: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the page as data for JSON, with decoded payloads."""
        return {
            "shard_id": self.shard_id,
            "records": [record_to_dict(self.shard_id, record) for record in self.records],
            "next_position": format_position(self.next_position),
            "millis_behind_latest": self.millis_behind_latest,
            "at_tip": self.at_tip,
            "iterator": self.iterator,
            "children": list(self.children),
        }


def read_page(
    connection: Connection,
    stream: str | StreamId,
    shard_id: str,
    position: Position,
    *,
    limit: int = 100,
    iterator: str | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> RecordPage:
    """Read one page of a shard. Costs one GetShardIterator call and one to four GetRecords calls, 0.25 s apart.

    Kinesis may return an empty response although there are later records. After four such responses, the page is empty and not
    `RecordPage.at_tip`. Pass its ``iterator`` and ``next_position`` to the next call, which then continues after these
    responses instead of repeating them.

    Args:
        connection: Account and region.
        stream: Name or ARN.
        shard_id: The shard.
        position: Where the page begins. `Latest` gives an empty page whose ``next_position`` is the tip.
        limit: Maximum user records, 1 to 10,000. A page may end inside an aggregate; the next page continues there.
        iterator: `RecordPage.iterator` of the previous page; None if there is none. An expired iterator is replaced by a
            new one at ``position``.
        clock: Measures calls; replaced in tests.
        sleep: Called with the seconds to wait; replaced in tests.

    Raises:
        ConfigError: If ``limit`` is out of range.
        ValueError: If the position is `Ended`.
        InvalidPositionError: If the shard does not have the position.
        AwsError: If a call fails; throttled calls are retried for some seconds.
    """
    check_int("limit", limit, 1, MAX_PAGE)
    if isinstance(position, Ended):
        raise ValueError("a shard that was read to its end has no further page")  # noqa: TRY004 - a state, not a type
    clock = clock or SystemClock()
    cursor = ShardCursor(connection.kinesis, StreamId.parse(stream), shard_id, position, clock=clock)
    if iterator is not None:
        cursor.advance(GetRecordsPage([], iterator, NO_RESPONSE, None, {}))
    reads = 0
    while True:
        page = call_with_retries(
            lambda: cursor.fetch(limit), operation=None, client=connection.kinesis, timeout=20.0, sleep=sleep
        )
        reads += 1
        cursor.advance(page)
        if page.records or page.next_iterator is None or not page.header.millis_behind_latest:
            break
        if reads >= PAGE_READS:
            break
        sleep(_READ_PAUSE)
    with locating(stream=StreamId.parse(stream).name, shard_id=shard_id):
        records = tuple(user_records_after(page, position, limit))
    behind = page.header.millis_behind_latest
    after: Position
    if len(records) >= limit:
        last = records[-1]
        whole = last.sequence_number == page.records[-1].sequence_number and _is_last(page, last)
        after = AfterSequence(
            last.sequence_number, sub_sequence_number=None if whole else last.sub_sequence_number
        )
        rest = not whole or page.next_iterator is not None
        return RecordPage(
            shard_id=shard_id,
            records=records,
            next_position=after if rest else Ended(),
            millis_behind_latest=behind,
            at_tip=whole and rest and not behind and len(page.records) < limit,
            children=() if rest else child_ids(page),
            reads=reads,
        )
    return RecordPage(
        shard_id=shard_id,
        records=records,
        next_position=Ended() if page.next_iterator is None else _after(page, position, cursor),
        iterator=page.next_iterator if not page.records and behind else None,
        millis_behind_latest=behind,
        at_tip=page.next_iterator is not None and not behind,
        children=child_ids(page) if page.next_iterator is None else (),
        reads=reads,
    )


def read_record(
    connection: Connection, stream: str | StreamId, shard_id: str, position: ExtendedSequenceNumber
) -> UserRecord:
    """Read one user record; raises ConfigError if it has expired or belongs to another shard. Retries throttled calls for some seconds."""
    page = read_page(
        connection,
        stream,
        shard_id,
        parse_position(f"at:{position}", now=None),
        limit=1,
    )
    if page.records and position_of(page.records[0]) == position:
        return page.records[0]
    raise ConfigError("record", str(position), f"a record that shard {shard_id} still has")


def user_records_after(
    page: GetRecordsPage, position: Position, limit: int | None = None
) -> list[UserRecord]:
    """Return the user records of a page that come after a position inside an aggregate, at most ``limit``."""
    records = deaggregate(page.records)
    found: list[UserRecord] = []
    for record in records:
        if (
            isinstance(position, AfterSequence)
            and position.sub_sequence_number is not None
            and record.sequence_number == position.sequence_number
            and record.sub_sequence_number <= position.sub_sequence_number
        ):
            continue
        found.append(record)
        if limit is not None and len(found) >= limit:
            break
    return found


def child_ids(page: GetRecordsPage) -> tuple[str, ...]:
    """Return the ids of the child shards, which the last page of a shard names."""
    return tuple(sorted(str(child["ShardId"]) for child in page.child_shards or () if child.get("ShardId")))


def shown_headers(headers: Mapping[str, bytes]) -> dict[str, str]:
    """Return headers as text. A value that is not UTF-8 is base64 under its name and ``;b64``, as in the store."""
    shown: dict[str, str] = {}
    for name, value in headers.items():
        try:
            shown[name] = value.decode()
        except UnicodeDecodeError:
            shown[f"{name};b64"] = base64.b64encode(value).decode("ascii")
    return shown


def record_to_dict(shard_id: str, record: UserRecord, *, limit: int | None = None) -> dict[str, Any]:
    """Return a record as data for JSON: ``data`` is the JSON value, text or hexadecimal digits, depending on ``encoding``.

    ``limit`` is the number of payload bytes to decode; None for all.
    """
    decoded = decode_payload(record.data, limit=len(record.data) if limit is None else limit)
    arrived = record.approximate_arrival_timestamp
    return {
        "shard_id": shard_id,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "aggregated": record.aggregated,
        "arrived_at": arrived.isoformat(timespec="milliseconds") if arrived else None,
        "partition_key": record.partition_key,
        "explicit_hash_key": record.explicit_hash_key,
        "headers": shown_headers(record.headers),
        "size": decoded.size,
        "encoding": decoded.kind.value,
        "data": decoded.value(),
        "truncated": decoded.truncated,
    }


def _is_last(page: GetRecordsPage, record: UserRecord) -> bool:
    """Return whether a user record is the last user record of the page's last Kinesis record."""
    if not record.aggregated:
        return True
    return len(deaggregate(page.records[-1:])) - 1 == record.sub_sequence_number


def _after(page: GetRecordsPage, position: Position, cursor: ShardCursor) -> Position:
    """Return the position after a page, which stays inside an aggregate until all of it was read."""
    return cursor.position if page.records or isinstance(position, Latest) else position
