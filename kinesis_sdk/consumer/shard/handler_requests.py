"""Requests of an operator to the handler of a shard, which the owner of its lease carries out.

An operator writes the attribute ``handlerRequest`` of the lease's row, and the owner finds it in its regular scan. Requests do not
change the lease counter, so a request never disturbs the owner. The owner removes a request for a retry as soon as it has carried it
out, and a request to leave out a record once the checkpoint has passed the record. If the owner dies before that, the next owner finds
the request and leaves out the same record.
"""

from __future__ import annotations

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb

_REPEAT_AFTER = 10.0
"""Seconds until a failed removal is retried."""


class HandlerRequests:
    """The requests for one shard. Used by the shard's step."""

    def __init__(self, held: HeldLease, log: FieldLogger) -> None:
        self._held = held
        self._logger = log
        # Kept after the row no longer shows them: a stale scan may show a request again, or not yet.
        self._seen: HandlerRequest | None = None
        self._ended: HandlerRequest | None = None
        self._end_at = 0.0

    @property
    def left_out(self) -> ExtendedSequenceNumber | None:
        """Position of the record to leave out; None if there is none."""
        request = self._held.handler_request
        return None if request is None or request == self._ended else request.record

    def take_new(self) -> HandlerRequest | None:
        """Return a request that was not returned before; None if there is none."""
        request = self._held.handler_request
        if request is None or request == self._seen:
            return None
        self._seen, self._end_at = request, 0.0
        self._logger.warning(
            "shard %s: an operator asks for %s (request %s)",
            self._held.shard_id,
            "the next call of the handler now"
            if request.verb is HandlerVerb.RETRY
            else f"record {request.record} to be left out",
            request.id,
        )
        return request

    def end(self, now: float) -> None:
        """Remove the request from the row if it was carried out."""
        request = self._seen
        if request is None or request == self._ended or now < self._end_at:
            return
        if request.record is not None and self._held.lease.checkpoint < request.record:
            return
        try:
            self._held.end_handler_request(request)
        except KinesisSdkError as error:
            self._end_at = now + _REPEAT_AFTER
            self._logger.warning(
                "shard %s: request %s was carried out, but cannot be removed from the row yet: %s",
                self._held.shard_id,
                request.id,
                error,
            )
            return
        self._ended = request
