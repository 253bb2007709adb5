"""The producer: a KPL in one Python process."""

from kinesis_sdk.common.records import Attempt
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.producer import Producer, ProducerStats
from kinesis_sdk.producer.record import PutResult

__all__ = [
    # the producer
    "Producer",
    "ProducerConfig",
    "ProducerStats",
    # results
    "Attempt",
    "PutResult",
]
