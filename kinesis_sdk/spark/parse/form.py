"""The format of record values, as the options of a reader define it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_sdk.spark.connection import ConnectionSettings

PERMISSIVE, DROP, FAIL = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
MODES = (PERMISSIVE, DROP, FAIL)


@dataclass(frozen=True, kw_only=True)
class ValueFormat:
    """Format of values; picklable.

    Attributes:
        name: ``json``, ``csv``, ``avro`` or ``protobuf``.
        mode: Treatment of a malformed value: null fields (``PERMISSIVE``), no row (``DROPMALFORMED``), or an error (``FAILFAST``).
        corrupt_name: Column for the text of a malformed value, if the schema contains this column.
        zone: Name of the time zone of timestamps whose text names none.
        registry: Connection to the schema registry whose headers the values have; None if values have no headers.
        settings: Options of this format only, by the names of its parser's arguments.
    """

    name: str
    mode: str = PERMISSIVE
    corrupt_name: str = "_corrupt_record"
    zone: str = "UTC"
    registry: ConnectionSettings | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
