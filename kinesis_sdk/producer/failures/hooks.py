"""Hooks for records that failed permanently.

There are two hooks. ``on_send_error`` reports failures of `Producer.send`, which returns no futures; without it, and without
``on_record_failed``, such failures are logged. ``on_record_failed`` gets *every* record that was not stored, whichever method put it, so
that the record can be kept: `FileSpool` is such a hook.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_sdk.common.headers import NO_HEADERS, headers_in
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import CountingLogThrottle
from kinesis_sdk.common.once.identity import RecordIdentity
from kinesis_sdk.common.stream import StreamId

if TYPE_CHECKING:
    from kinesis_sdk.producer.records.record import BufferedRecord
    from kinesis_sdk.producer.stream.pending import Settled

_LOGGER = FieldLogger(logging.getLogger(__name__))


@dataclass(frozen=True)
class FailedRecord:
    """A record that was not stored, with all values that are needed to put it again.

    Attributes:
        stream: Name or ARN, as it was passed to `put`.
        partition_key: The user's partition key; None for a record without a partition key.
        explicit_hash_key: Canonical decimal text of the user's explicit hash key, if there is one.
        data: Payload; left out of ``repr``.
        error: A `RecordFailedError` with the underlying error as ``__cause__`` and all attempts.
        identity: Identity of the record, if an attempt may have stored it or if it has a ``dedup_id``; None without ``idempotent=True``.
            With an identity, `Producer.put_again` repeats the record instead of putting another one.
        headers: Its headers, possibly empty; left out of ``repr``.
    """

    stream: str
    partition_key: str | None
    explicit_hash_key: str | None
    data: bytes = field(repr=False)
    error: BaseException
    identity: RecordIdentity | None = None
    headers: Mapping[str, bytes] = field(default=NO_HEADERS, repr=False)


FailureHook = Callable[[FailedRecord], object]
"""Called once for each failed record, on a thread that the producer needs, so it should return quickly. It may call ``put``, which raises
an error if there is no room, but not ``flush`` or ``close``."""


class FailureHooks:
    """Calls the hooks with failed records. Thread-safe if the hooks are; never raises."""

    def __init__(self, on_send_error: FailureHook | None, on_record_failed: FailureHook | None) -> None:
        self._on_send_error = on_send_error
        self._on_record_failed = on_record_failed
        self._hook_errors = CountingLogThrottle(_LOGGER, logging.ERROR)
        self._unhandled = CountingLogThrottle(_LOGGER, logging.ERROR)

    def notify(self, stream: StreamId, settled: Iterable[Settled]) -> None:
        """Call the hooks. Call this before the futures become final, because the payloads are released then."""
        for records, stored, error, *_ in settled:
            if stored is None and error is not None:
                for record in records:
                    self._notify(stream, record, error)

    def _notify(self, stream: StreamId, record: BufferedRecord, error: BaseException) -> None:
        hooks = [self._on_record_failed]
        if record.sent_blind:
            hooks.append(self._on_send_error)
        told = False
        for hook in hooks:
            if hook is None:
                continue
            try:
                hook(
                    FailedRecord(
                        str(stream),
                        record.partition_key or None,
                        record.explicit_hash_key,
                        record.data,
                        error,
                        None if record.identity is None else record.identity.shared,
                        headers_in(record.header_fields),
                    )
                )
                told = True
            except BaseException as hook_error:  # noqa: BLE001 - also SystemExit: other records still need their result
                self._hook_errors.log(
                    "failure hook raised (%d times so far); these failures are visible only through the records' futures",
                    error=hook_error,
                    extra=log_fields(stream=stream),
                )
        if record.sent_blind and not told:
            # Throttled, because every record for a deleted stream fails.
            self._unhandled.log(
                "%d records passed to send() have failed so far and no hook handled them: %s",
                error,
                extra=log_fields(stream=stream),
            )
