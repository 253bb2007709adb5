"""The demo's records: 20,000 flights of 2001, as JSON lines.

Source: US Bureau of Transportation Statistics, on-time performance (public domain), as packaged by
vega-datasets 3.2.1.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from typing import NamedTuple


class Flight(NamedTuple):
    """One flight.

    Attributes:
        origin: Airport it left from; the partition key.
        line: Its JSON object, one line.
    """

    origin: str
    line: bytes


def load_flights() -> list[Flight]:
    """All flights, in order of departure."""
    packed = files("kinesis_sdk.testing").joinpath("data/flights-20k.ndjson.gz").read_bytes()
    lines = gzip.decompress(packed).splitlines()
    return [Flight(json.loads(line)["origin"], line) for line in lines]


def make_payload(run: str, number: int, flight: Flight) -> bytes:
    """A flight as the demo puts it: with the run that it belongs to and its number in front."""
    return b'{"run":"%s","n":%d,%s' % (run.encode(), number, flight.line[1:])


def read_number(run: bytes, payload: bytes) -> int | None:
    """Number of a record of this run; None for a record that somebody else put into the stream."""
    prefix = b'{"run":"' + run + b'","n":'
    if not payload.startswith(prefix):
        return None
    return int(payload[len(prefix) : payload.index(b",", len(prefix))])
