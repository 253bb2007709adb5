"""The KPL's and KCL's metrics in the words of systems that are not CloudWatch: kinds, base units, snake case.

CloudWatch has one kind of metric. Prometheus and OpenTelemetry want to know what a number means: a count that
only grows, a state, a distribution. What is not listed here is a distribution, which is always true.
"""

from __future__ import annotations

import re
from enum import Enum


class Kind(Enum):
    """What the observations of a metric are."""

    COUNTER = "counter"
    """Amounts to be summed up."""

    OUTCOME = "outcome"
    """One for each success, zero for each failure."""

    GAUGE = "gauge"
    """Samples of a state: the newest counts."""

    TIMING = "timing"
    """Durations that come one at a time: a histogram."""

    DISTRIBUTION = "distribution"
    """Anything else: how many there were, and their sum."""


_KINDS = {
    # producer
    "UserRecordsReceived": Kind.COUNTER,
    "UserRecordsPending": Kind.GAUGE,
    "UserRecordsPut": Kind.OUTCOME,
    "UserRecordsDataPut": Kind.COUNTER,
    "KinesisRecordsPut": Kind.OUTCOME,
    "KinesisRecordsDataPut": Kind.COUNTER,
    "AllErrors": Kind.COUNTER,
    "ErrorsByCode": Kind.COUNTER,
    "UserRecordExpired": Kind.COUNTER,
    "RequestTime": Kind.TIMING,
    # consumer
    "RecordsProcessed": Kind.COUNTER,
    "DataBytesProcessed": Kind.COUNTER,
    "RecordsDeadLettered": Kind.COUNTER,
    "ShardQuarantined": Kind.COUNTER,
    "MillisBehindLatest": Kind.GAUGE,
    "ShardStalled": Kind.GAUGE,
    "RecordProcessor.processRecords.Time": Kind.TIMING,
    "TotalLeases": Kind.GAUGE,
    "LeasesToTake": Kind.GAUGE,
    "CurrentLeases": Kind.GAUGE,
}

_NAMES = {
    # A name that says its unit would be wrong in another one.
    "MillisBehindLatest": "behind_latest",
    "ErrorsByCode": "errors_by_code",
    "RecordProcessor.processRecords.Time": "process_records_time",
}

_SCALES = {
    "Seconds": (1.0, "seconds", "s"),
    "Milliseconds": (1e-3, "seconds", "s"),
    "Microseconds": (1e-6, "seconds", "s"),
    "Bytes": (1.0, "bytes", "By"),
    "Kilobytes": (1e3, "bytes", "By"),
    "Megabytes": (1e6, "bytes", "By"),
    "Gigabytes": (1e9, "bytes", "By"),
    "Percent": (1e-2, "ratio", "1"),
}

TIMING_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds of the histograms' buckets: from a request in the same zone to a batch that takes long."""

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_WORD = re.compile(r"[^0-9A-Za-z]+")


def kind_of(name: str) -> Kind:
    """What a metric's observations are, by its KPL or KCL name."""
    return _KINDS.get(name, Kind.DISTRIBUTION)


def snake_case(name: str) -> str:
    """``UserRecordsPut`` → ``user_records_put``, ``RecordProcessor.initialize.Time`` → ``record_processor_initialize_time``."""
    known = _NAMES.get(name)
    if known is not None:
        return known
    return _NO_WORD.sub("_", _WORD.sub("_", name)).strip("_").lower() or "unnamed"


def base_unit(unit: str) -> tuple[float, str, str]:
    """How to get from a CloudWatch unit to the base unit.

    Returns:
        The factor, the base unit as Prometheus writes it in names (empty for plain numbers), and its UCUM code
        for OpenTelemetry.
    """
    return _SCALES.get(unit, (1.0, "", "1"))
