"""Interceptors of consumers: code of users around each call of a handler, in a worker and in a Lambda function."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from kinesis_sdk.common.errors import ConfigError, ConsumerError
from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId


class DeliveredBatch(Protocol):
    """The records of one call of a handler: a `RecordBatch` of a worker, or one record of an event in a Lambda function.

    Attributes:
        records: The user records, in order.
        stream: The stream.
        shard_id: Id of the shard.
    """

    @property
    def records(self) -> Sequence[UserRecord]:
        """The user records, in order."""
        ...

    @property
    def stream(self) -> StreamId:
        """The stream."""
        ...

    @property
    def shard_id(self) -> str:
        """Id of the shard."""
        ...


@dataclass(frozen=True)
class OneRecord:
    """The `DeliveredBatch` of a function that takes one record."""

    records: Sequence[UserRecord]
    stream: StreamId
    shard_id: str


class ConsumerInterceptor:
    """Code around each call of a handler: tracing, decryption. Subclass it.

    In ``Worker(interceptors=[a, b])``, ``a`` is the outer interceptor. The same interceptors serve plain handlers and
    coroutines: a context variable that the context manager sets is set in the handler, and reset afterwards.
    """

    def on_batch(
        self,
        batch: DeliveredBatch,  # noqa: ARG002 - for subclasses
    ) -> AbstractContextManager[Sequence[UserRecord] | None]:
        """Return a context manager inside which the handler is called, on the same thread or in the same task.

        It yields None, or the same number of records to deliver instead, at the same positions (``record._replace(data=…)``).
        If the handler raises, the context manager gets the error and cannot suppress it. Its own errors count as errors of the
        handler, so the batch is delivered again. With a sink, the transaction begins and ends inside the context manager.

        This method is called for each attempt, so the same records may be delivered again, perhaps in smaller batches.
        With ``concurrency``, this method is called on several threads at once.
        """
        return nullcontext()

    def on_checkpoint(
        self,
        stream: StreamId,  # noqa: ARG002 - for subclasses
        shard_id: str,  # noqa: ARG002
        position: ExtendedSequenceNumber,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Return a context manager inside which a worker stores a checkpoint of a shard, on any of its threads.

        The position is the last processed record, or SHARD_END. If storing fails permanently, the context manager gets the error and
        cannot suppress it. Errors of the context manager are logged: no checkpoint depends on them.
        """
        return nullcontext()


def checked_interceptors(interceptors: Sequence[ConsumerInterceptor]) -> tuple[ConsumerInterceptor, ...]:
    """Return the interceptors of a consumer.

    Raises:
        ConfigError: If an element is not an interceptor.
    """
    found = tuple(interceptors)
    for one in found:
        if not isinstance(one, ConsumerInterceptor):
            raise ConfigError("interceptors", one, "instances of ConsumerInterceptor")
    return found


_Batch = TypeVar("_Batch", bound=DeliveredBatch)


class Around(Generic[_Batch]):
    """Context manager of one call of a handler: it enters all interceptors, and yields the batch for the handler.

    Args:
        interceptors: The interceptors, the outermost first.
        batch: The batch, a dataclass.
    """

    def __init__(self, interceptors: Sequence[ConsumerInterceptor], batch: _Batch) -> None:
        self._interceptors = interceptors
        self._batch = batch
        self._stack = ExitStack()

    def __enter__(self) -> _Batch:
        batch = self._batch
        with self._stack:  # if an interceptor raises, the interceptors already entered are left
            for one in self._interceptors:
                records = self._stack.enter_context(one.on_batch(batch))
                if records is not None:
                    batch = _replaced(one, batch, records)
            self._stack = self._stack.pop_all()
        return batch

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The result is ignored: if an error were suppressed, its records would count as processed.
        self._stack.__exit__(kind, error, traceback)


def _replaced(one: ConsumerInterceptor, batch: _Batch, records: Sequence[UserRecord]) -> _Batch:
    if list(map(position_of, records)) != list(map(position_of, batch.records)):
        raise ConsumerError(
            f"{type(one).__qualname__}.on_batch yielded {len(records)} records for {len(batch.records)}: it has to yield the same number of "
            "records at the same positions (record._replace(data=…)), because checkpoints are made of positions"
        )
    changed: Any = dataclasses.replace(batch, records=records)  # type: ignore[type-var]
    return changed  # type: ignore[no-any-return]
