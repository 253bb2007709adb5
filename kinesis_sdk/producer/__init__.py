"""Producer: a KPL in one Python process."""

from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.records import Attempt
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.failure_hooks import FailedRecord
from kinesis_sdk.producer.producer import Producer
from kinesis_sdk.producer.record import PutResult
from kinesis_sdk.producer.spool import FileSpool, SpooledRecord, read_spool
from kinesis_sdk.producer.stats import ProducerStats

if TYPE_CHECKING:
    from kinesis_sdk.producer.aio import AsyncProducer

__all__ = [
    # the producer
    "AsyncProducer",
    "Producer",
    "ProducerConfig",
    "ProducerStats",
    # results
    "Attempt",
    "PutResult",
    # what is not stored
    "FailedRecord",
    "FileSpool",
    "SpooledRecord",
    "read_spool",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that a program without asyncio does not pay for it.
    if name != "AsyncProducer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kinesis_sdk.producer.aio import AsyncProducer

    globals()[name] = AsyncProducer
    return AsyncProducer
