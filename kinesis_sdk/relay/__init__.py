"""Consume → produce: a handler returns records, which are put into other streams; readers that use this SDK get each record once.

    with Producer(ProducerConfig(idempotent=True, dedup_namespace="invoicing")) as producer:
        Worker("orders", application_name="invoicing", handler=Relay(producer, invoice, name="invoices")).run()

See `docs/relay.md`. Everything is loaded on first use.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.relay.handler import Relay as Relay
    from kinesis_sdk.relay.outbox import Outbox as Outbox
    from kinesis_sdk.relay.outbox import OutboxPublisher as OutboxPublisher
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.relay.handler": ("Relay",),
            "kinesis_sdk.relay.outbox": ("Outbox", "OutboxPublisher"),
        },
    )
