"""OpenTelemetry spans and metrics of records: interceptors for producers, workers and Lambda functions, and a decorator for Spark.

    with Producer(interceptors=[ProducerTracing()]) as producer:
        ...
    Worker(..., interceptors=[ConsumerTracing(application_name="billing")]).run()

Needs the extra ``opentelemetry``; see `docs/tracing.md`. Everything is loaded on first use.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.tracing.batches import BatchTracing as BatchTracing
    from kinesis_sdk.tracing.consumer import ConsumerTracing as ConsumerTracing
    from kinesis_sdk.tracing.producer import ProducerTracing as ProducerTracing
    from kinesis_sdk.tracing.spans import Tracing as Tracing
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.tracing.spans": ("Tracing",),
            "kinesis_sdk.tracing.consumer": ("ConsumerTracing",),
            "kinesis_sdk.tracing.producer": ("ProducerTracing",),
            "kinesis_sdk.tracing.batches": ("BatchTracing",),
        },
    )
