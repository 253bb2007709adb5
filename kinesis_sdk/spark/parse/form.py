"""The format of the values of records, as the options of a reader say it."""

from __future__ import annotations

from dataclasses import dataclass

PERMISSIVE, DROP, FAIL = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
MODES = (PERMISSIVE, DROP, FAIL)


@dataclass(frozen=True, kw_only=True)
class ValueFormat:
    """Format of values; picklable.

    Attributes:
        name: ``json``.
        mode: Treatment of a malformed value: null fields (``PERMISSIVE``), no row (``DROPMALFORMED``), or an error (``FAILFAST``).
        corrupt_name: Column with the text of a malformed value, if the schema has it.
        zone: Name of the time zone of timestamps whose text names none.
    """

    name: str
    mode: str = PERMISSIVE
    corrupt_name: str = "_corrupt_record"
    zone: str = "UTC"
