"""Connects a shard with its child: callbacks of the SDK's worker become calls of the child."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import ClassVar

from kinesis_sdk.common.errors import RestartShardError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.consumer import Checkpointer, RecordBatch, RecordHandler, ShardContext
from kinesis_sdk.multilang.children import Children
from kinesis_sdk.multilang.protocol import (
    LEASE_LOST,
    PROCESS_RECORDS,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    DaemonMessage,
    Initialize,
    LeaseLost,
    ShardEnded,
    ShutdownRequested,
    encode,
    encode_records,
)
from kinesis_sdk.multilang.session import CallFailedError, ChildSession

_LOGGER = FieldLogger(logging.getLogger(__name__))


class ChildHandler(RecordHandler):
    """Handler of one shard under one lease, which passes every callback on to a child.

    A failed child affects only itself: its shard starts again at the checkpoint, with a new child, after a pause.
    """

    concurrency: ClassVar[int | None] = 1

    def __init__(self, children: Children) -> None:
        self.empty_batches: bool = children.empty_batches
        self._children = children
        self._session: ChildSession | None = None
        self._logger = _LOGGER
        self._shard_id = ""

    def initialize(self, shard: ShardContext) -> None:
        """Start the child, and send it the starting position in the shard."""
        self._logger = FieldLogger(_LOGGER, stream=shard.stream, shard=shard.shard_id, worker=shard.worker_id)
        self._shard_id = shard.shard_id
        self._session = self._children.start(shard, self._note_end)
        position = shard.checkpoint
        self._call(Initialize(shard.shard_id, position.sequence_number, position.sub_sequence_number))

    def _note_end(self) -> None:
        # Without this, only the next records would show that a child ended between two calls, and they may come much later.
        # Records without a checkpoint would wait as long. So the next response without records becomes a call, which fails.
        self.empty_batches = True

    def process_records(self, batch: RecordBatch) -> None:
        """Pass on the records."""
        pieces = encode_records(batch.records, batch.millis_behind_latest)
        self._request(PROCESS_RECORDS, pieces, batch.checkpointer)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Notify the child of the end of the shard, which the child must checkpoint, and let it exit."""
        self._request(SHARD_ENDED, (encode(ShardEnded()),), checkpointer)
        self._end()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Let the child checkpoint for the last time, notify it that the lease is lost, and let it exit.

        The lease is released afterwards, so the child has stopped processing before another worker begins.
        """
        self._try(SHUTDOWN_REQUESTED, ShutdownRequested(), checkpointer)
        self.lease_lost()

    def lease_lost(self) -> None:
        """Notify the child that the lease is lost, and let it exit."""
        self._try(LEASE_LOST, LeaseLost())
        self._end()

    def _call(self, message: DaemonMessage) -> None:
        self._request(message.action, (encode(message),))

    def _request(
        self, action: str, pieces: Iterable[bytes], checkpointer: Checkpointer | None = None
    ) -> None:
        session = self._session
        if session is None:
            raise RestartShardError(f"there is no child for {action}")
        try:
            session.call(action, pieces, checkpointer)
        except CallFailedError as error:
            self._session = None
            raise self._children.end_failed(session, error) from None

    def _try(self, action: str, message: DaemonMessage, checkpointer: Checkpointer | None = None) -> None:
        """Make the last call of a child; a failure is only logged."""
        if self._session is None:
            return
        try:
            self._request(action, (encode(message),), checkpointer)
        except RestartShardError as error:
            self._logger.error("shard %s: %s", self._shard_id, error)

    def _end(self) -> None:
        if self._session is not None:
            self._children.end(self._session)
            self._session = None
