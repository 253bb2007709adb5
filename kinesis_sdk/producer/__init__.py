"""The producer: the features of the KPL in one Python process."""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.common.once.identity import RecordIdentity as RecordIdentity
    from kinesis_sdk.common.records import Attempt as Attempt
    from kinesis_sdk.producer.aio import AsyncProducer as AsyncProducer
    from kinesis_sdk.producer.config import ProducerConfig as ProducerConfig
    from kinesis_sdk.producer.failures.hooks import FailedRecord as FailedRecord
    from kinesis_sdk.producer.failures.spool import FileSpool as FileSpool
    from kinesis_sdk.producer.failures.spool import SpooledRecord as SpooledRecord
    from kinesis_sdk.producer.failures.spool import read_spool as read_spool
    from kinesis_sdk.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from kinesis_sdk.producer.interceptors import SendRequest as SendRequest
    from kinesis_sdk.producer.producer import Producer as Producer
    from kinesis_sdk.producer.records.future import PendingRecord as PendingRecord
    from kinesis_sdk.producer.records.put import Put as Put
    from kinesis_sdk.producer.records.record import PutResult as PutResult
    from kinesis_sdk.producer.stats import ProducerStats as ProducerStats
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            # producing
            "kinesis_sdk.producer.producer": ("Producer",),
            "kinesis_sdk.producer.aio": ("AsyncProducer",),
            "kinesis_sdk.producer.records.put": ("Put",),
            "kinesis_sdk.producer.config": ("ProducerConfig",),
            "kinesis_sdk.producer.stats": ("ProducerStats",),
            "kinesis_sdk.producer.interceptors": ("ProducerInterceptor", "SendRequest"),
            # the result of a record
            "kinesis_sdk.producer.records.future": ("PendingRecord",),
            "kinesis_sdk.producer.records.record": ("PutResult",),
            "kinesis_sdk.common.records": ("Attempt",),
            # records that could not be stored
            "kinesis_sdk.producer.failures.hooks": ("FailedRecord",),
            "kinesis_sdk.common.once.identity": ("RecordIdentity",),
            "kinesis_sdk.producer.failures.spool": ("FileSpool", "SpooledRecord", "read_spool"),
        },
    )
