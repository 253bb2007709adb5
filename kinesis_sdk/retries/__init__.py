"""Retries with delays: records that fail wait in tiers, and are delivered to the same handler again.

    tiers = RetryTiers((60, 600, 3600), to=StreamTiers(producer, "orders"), dead_letter=keep)
    config = ConsumerConfig(on_handler_error=tiers)
    Worker("orders", application_name="billing", handler=handle, config=config)
    Worker(streams=tiers.streams(), application_name="billing-retries", handler=handle, config=config)

Everything is loaded on first use; see `docs/retries.md`.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.retries.streams import StreamTiers as StreamTiers
    from kinesis_sdk.retries.table import RetryTable as RetryTable
    from kinesis_sdk.retries.tiers import RetryTiers as RetryTiers
    from kinesis_sdk.retries.tiers import TierStore as TierStore
    from kinesis_sdk.retries.worker import RetryWorker as RetryWorker
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.retries.tiers": ("RetryTiers", "TierStore"),
            "kinesis_sdk.retries.streams": ("StreamTiers",),
            "kinesis_sdk.retries.table": ("RetryTable",),
            "kinesis_sdk.retries.worker": ("RetryWorker",),
        },
    )
