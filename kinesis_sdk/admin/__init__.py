"""Administration of streams and applications: the API under the command line, the terminal view and the web console.

It reads the lease table and the stream, not the workers' processes, so it works for every KCL application: this SDK's and
those of the Java KCL 1.x, 2.x and 3.x.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.admin.connection import Connection as Connection
    from kinesis_sdk.admin.fleet.model import FleetView as FleetView
    from kinesis_sdk.admin.fleet.model import LagReading as LagReading
    from kinesis_sdk.admin.fleet.model import LagSource as LagSource
    from kinesis_sdk.admin.fleet.model import LeaseState as LeaseState
    from kinesis_sdk.admin.fleet.model import LeaseView as LeaseView
    from kinesis_sdk.admin.fleet.model import Move as Move
    from kinesis_sdk.admin.fleet.model import OwnerKind as OwnerKind
    from kinesis_sdk.admin.fleet.model import OwnerView as OwnerView
    from kinesis_sdk.admin.fleet.model import Problem as Problem
    from kinesis_sdk.admin.fleet.model import Severity as Severity
    from kinesis_sdk.admin.fleet.model import Totals as Totals
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.admin.connection": ("Connection",),
            "kinesis_sdk.admin.fleet.model": (
                "FleetView",
                "LagReading",
                "LagSource",
                "LeaseState",
                "LeaseView",
                "Move",
                "OwnerKind",
                "OwnerView",
                "Problem",
                "Severity",
                "Totals",
            ),
        },
    )
