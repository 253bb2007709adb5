"""Plain data from dataclasses, for ``--json``, the web console and a user's ``json.dumps``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber


def plain(value: object) -> Any:
    """Return a value as dictionaries, lists, strings, numbers, booleans and None; raises TypeError if a part cannot be converted.

    Fields of dataclasses keep their names. Fields that are left out of ``repr`` are also left out here, because they contain the
    application's own bytes. Enumerations become their values, times ISO 8601 texts, and hash keys decimal texts, since JSON
    numbers of other languages have only 53 bits. A number that is not finite becomes None.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, ExtendedSequenceNumber):
        return {"sequence_number": value.sequence_number, "sub_sequence_number": value.sub_sequence_number}
    if isinstance(value, HashKeyRange):
        return {"start": str(value.start), "end": str(value.end)}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.repr}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted(plain(item) for item in value)
    raise TypeError(f"{type(value).__name__} cannot be converted to plain data")
