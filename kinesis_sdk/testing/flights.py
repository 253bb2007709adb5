"""Sample records: 20,000 US flights of 2001, as JSON lines.

Source: US Bureau of Transportation Statistics, on-time performance (public domain), from vega-datasets 3.2.1.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from typing import NamedTuple


class Flight(NamedTuple):
    """One flight.

    Attributes:
        origin: Airport of departure; the partition key.
        line: JSON object, on one line.
    """

    origin: str
    line: bytes


def load_flights() -> list[Flight]:
    """Return all flights, in order of departure."""
    packed = files("kinesis_sdk.testing").joinpath("data/flights-20k.ndjson.gz").read_bytes()
    lines = gzip.decompress(packed).splitlines()
    return [Flight(json.loads(line)["origin"], line) for line in lines]


def make_payload(run: str, number: int, flight: Flight) -> bytes:
    """Return a payload: the name of the run, the number of the record, and a flight."""
    return b'{"run":"%s","n":%d,%s' % (run.encode(), number, flight.line[1:])


def read_number(run: bytes, payload: bytes) -> int | None:
    """Return the number of a record of this run; None for a record of another run."""
    prefix = b'{"run":"' + run + b'","n":'
    if not payload.startswith(prefix):
        return None
    return int(payload[len(prefix) : payload.index(b",", len(prefix))])
