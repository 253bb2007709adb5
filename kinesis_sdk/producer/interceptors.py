"""Interceptors of a producer: code of users around each record and each request."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import CountingLogThrottle
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.io.sender import put_records
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.records.put import Put
from kinesis_sdk.producer.stream.collector import Batch

_LOGGER = FieldLogger(logging.getLogger(__name__))


class SendRequest:
    """One PutRecords request.

    Attributes:
        stream: The stream.
        kinesis_records: Number of Kinesis records in it.
        size: Bytes as Kinesis counts them: data and partition keys.
        rejected: Number of Kinesis records that Kinesis rejected; None before the response and if the call failed as a whole.
    """

    def __init__(self, stream: StreamId, batch: Batch) -> None:
        self.stream: StreamId = stream
        self.kinesis_records: int = len(batch.entries)
        self.size: int = sum(entry.size for entry in batch.entries)
        self.rejected: int | None = None
        self._batch = batch

    @property
    def records(self) -> Sequence[PendingRecord]:
        """The user records in it, the same objects that `ProducerInterceptor.on_accepted` gets. Made on access."""
        return [cast("PendingRecord", record) for entry in self._batch.entries for record in entry.records]

    def __repr__(self) -> str:
        return f"<SendRequest stream={str(self.stream)!r} kinesis_records={self.kinesis_records} size={self.size}>"


class ProducerInterceptor:
    """Code around the records and requests of a producer: tracing, encryption, validation. Override the methods that you need.

    ``Producer(interceptors=[a, b])`` calls ``a`` before ``b`` for `on_put` and `on_accepted`; for `on_request`, ``a`` is the outer one. `Producer` and
    `AsyncProducer` call the same methods. Records that `Producer.put_again` repeats do not pass `on_put` and `on_accepted` again.
    """

    def on_put(self, put: Put) -> Put:
        """Return the record to put: the same record, or a changed copy (``put._replace(headers={**put.headers, "tenant": "acme"})``).

        Called for each record, before the serializer, without locks, on the caller's thread (with `AsyncProducer`, the event
        loop's). If it raises an error, ``put`` raises the same error, and the record is not accepted.
        """
        return put

    def on_accepted(self, put: Put, record: PendingRecord) -> None:
        """Note that a record was accepted. ``record.add_done_callback`` reports its result.

        Called on the thread on which `on_put` is called. Errors of this method are logged.

        Args:
            put: The record that the last interceptor's `on_put` returned.
            record: Its future.
        """

    def on_request(
        self,
        request: SendRequest,  # noqa: ARG002 - for subclasses
    ) -> AbstractContextManager[None]:
        """Return a context manager; the PutRecords call is made inside it.

        If the call fails as a whole, the context manager gets the error.

        Called on several threads of the producer at a time; while a thread is in the method, it sends no other request. An exception from
        the context manager is logged and otherwise ignored. The context manager cannot suppress an error of the call.
        """
        return nullcontext()


def checked_interceptors(interceptors: Sequence[ProducerInterceptor]) -> tuple[ProducerInterceptor, ...]:
    """Return the interceptors of a producer; raise `ConfigError` for an object of another type."""
    found = tuple(interceptors)
    for one in found:
        if not isinstance(one, ProducerInterceptor):
            raise ConfigError("interceptors", one, "instances of ProducerInterceptor")
    return found


class Interceptors:
    """The interceptors of a producer, in their order. Thread-safe if they are."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = interceptors
        self._errors = CountingLogThrottle(_LOGGER, logging.ERROR)

    def put(self, put: Put) -> Put:
        """Pass a record through the `on_put` methods of all interceptors. Their errors are raised."""
        for one in self._interceptors:
            put = one.on_put(put)
            if not isinstance(put, Put):
                raise TypeError(f"{type(one).__qualname__}.on_put returned {type(put).__name__}, not a Put")
        return put

    def accepted(self, put: Put, record: PendingRecord) -> None:
        """Notify the interceptors that a record was accepted."""
        for one in self._interceptors:
            try:
                one.on_accepted(put, record)
            except Exception as error:  # noqa: BLE001 - the record was accepted
                self._log(one, "on_accepted", put.stream, error)

    def put_records(self, client: KinesisClient, stream: StreamId, batch: Batch) -> Mapping[str, Any]:
        """`sender.put_records`, inside the context managers."""
        request = SendRequest(stream, batch)
        entered: list[tuple[ProducerInterceptor, AbstractContextManager[None]]] = []
        for one in self._interceptors:
            try:
                manager = one.on_request(request)
                manager.__enter__()
            except BaseException as error:  # noqa: BLE001 - also SystemExit: other records still need their result
                self._log(one, "on_request", stream, error)
            else:
                entered.append((one, manager))
        failure: BaseException | None = None
        try:
            response = put_records(client, stream, batch)
            request.rejected = sum(1 for result in response["Records"] if result.get("ErrorCode"))
            return response
        except BaseException as error:
            failure = error
            raise
        finally:
            for one, manager in reversed(entered):
                try:
                    if failure is None:
                        manager.__exit__(None, None, None)
                    else:
                        manager.__exit__(type(failure), failure, failure.__traceback__)
                except BaseException as error:  # noqa: BLE001 - as above
                    if error is not failure:
                        self._log(one, "on_request", stream, error)
            failure = None  # else its traceback and this frame would hold each other

    def _log(
        self, one: ProducerInterceptor, method: str, stream: str | StreamId, error: BaseException
    ) -> None:
        self._errors.log(
            "an interceptor raised (%d times so far) in %s.%s; its record or request is not affected",
            type(one).__qualname__,
            method,
            error=error,
            extra=log_fields(stream=StreamId.parse(stream)),
        )
