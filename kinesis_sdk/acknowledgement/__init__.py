"""Per-record acknowledgement: a handler gets single records, and the application acknowledges them in any order.

    Worker("orders", application_name="billing", handler=Acknowledging(handle)).run()

See `docs/acknowledgement.md`. Everything is loaded on first use.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.acknowledgement.handler import Acknowledging as Acknowledging
    from kinesis_sdk.acknowledgement.handler import ReceivedRecord as ReceivedRecord
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__, {"kinesis_sdk.acknowledgement.handler": ("Acknowledging", "ReceivedRecord")}
    )
