"""Repetitions by a producer: it writes tables by which readers recognize them.

Readers use the names exported here. A `RunReader` for each shard reads all records and decides which ones are repetitions. A `LookUp`
lists the calls that a decision may need. `carry_out` makes them on a thread that may block; a worker makes them step by step.

The writer's side is the producer's. `stamps.Stamps` gives the records of a stream their identities, in the table of each aggregate
(`runs.Runs`), and keeps the identities while an attempt may have been stored. `names.Names` derives identities from names. The producer
decides when a record is sent, and whether an attempt may have been stored.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.common.once.budget import MAX_BYTES as MAX_BYTES
    from kinesis_sdk.common.once.budget import OLDEST_MILLIS as OLDEST_MILLIS
    from kinesis_sdk.common.once.budget import LookUpBudget as LookUpBudget
    from kinesis_sdk.common.once.copies import CopySearch as CopySearch
    from kinesis_sdk.common.once.copies import FirstCopy as FirstCopy
    from kinesis_sdk.common.once.copies import first_copy as first_copy
    from kinesis_sdk.common.once.memory import Shortage as Shortage
    from kinesis_sdk.common.once.named import named_identities as named_identities
    from kinesis_sdk.common.once.names import Names as Names
    from kinesis_sdk.common.once.names import check_dedup_window as check_dedup_window
    from kinesis_sdk.common.once.reader import Decision as Decision
    from kinesis_sdk.common.once.reader import ListShards as ListShards
    from kinesis_sdk.common.once.reader import LookUp as LookUp
    from kinesis_sdk.common.once.reader import ReadShard as ReadShard
    from kinesis_sdk.common.once.reader import RunReader as RunReader
    from kinesis_sdk.common.once.shell import carry_out as carry_out
    from kinesis_sdk.common.once.shell import is_at_end as is_at_end
    from kinesis_sdk.common.once.shell import is_denied as is_denied
    from kinesis_sdk.common.once.shell import start_of as start_of
    from kinesis_sdk.common.once.table import FIRST_HOLD_OFF as FIRST_HOLD_OFF
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.common.once.budget": ("MAX_BYTES", "OLDEST_MILLIS", "LookUpBudget"),
            "kinesis_sdk.common.once.copies": ("CopySearch", "FirstCopy", "first_copy"),
            "kinesis_sdk.common.once.memory": ("Shortage",),
            "kinesis_sdk.common.once.named": ("named_identities",),
            "kinesis_sdk.common.once.names": ("Names", "check_dedup_window"),
            "kinesis_sdk.common.once.reader": (
                "Decision",
                "ListShards",
                "LookUp",
                "ReadShard",
                "RunReader",
            ),
            "kinesis_sdk.common.once.shell": ("carry_out", "is_at_end", "is_denied", "start_of"),
            "kinesis_sdk.common.once.table": ("FIRST_HOLD_OFF",),
        },
    )
