"""The one table of prices of AWS. `docs/costs.md` and `kinesis-sdk verify` use this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REGION = "us-east-1"
"""Region of the prices."""

AS_OF = "November 2024"
"""Month in which the prices were looked up."""

ELSEWHERE = 2.0
"""Factor for all other regions, whose prices were not looked up: an estimate on the safe side."""


@dataclass(frozen=True)
class Price:
    """The price of one unit.

    Attributes:
        usd: US dollars.
        unit: The unit, in the plural.
    """

    usd: float
    unit: str


PRICES: Mapping[str, Price] = {
    "shard_hour": Price(0.015, "shard hours"),
    "put_unit": Price(0.014e-6, "put payload units of 25 KB"),
    "retention_hour": Price(0.020, "shard hours of extended retention"),
    "fan_out_hour": Price(0.015, "consumer-shard hours of enhanced fan-out"),
    "fan_out_gb": Price(0.013, "GB read by enhanced fan-out"),
    "on_demand_hour": Price(0.040, "stream hours on demand"),
    "write_unit": Price(0.625e-6, "write units of DynamoDB on demand"),
    "read_unit": Price(0.125e-6, "read units of DynamoDB on demand"),
    "table_stream_read": Price(0.2e-6, "reads of a DynamoDB stream"),
}
"""Prices in REGION in the month AS_OF. A part of an hour counts as a whole hour."""


def factor(region: str | None) -> float:
    """Return the factor by which the prices are multiplied in a region.

    Args:
        region: Name of the region; None if it is unknown.
    """
    return 1.0 if region == REGION else ELSEWHERE
