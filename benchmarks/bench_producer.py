"""What a put costs: this package, the least that the format allows, and the peers; large records; latency.

    python benchmarks/bench_producer.py [--rounds 3] [--no-peers] [--curves keys,streams | none] [--save FILE] [--compiled WHEEL]

User records of 100 bytes with 1,000 partition keys for 64 shards, from `put` until all are acknowledged, over
HTTP, against a sink in its own process that answers at once. CPU is that of the client's process, all threads
included. Every measurement has a process of its own; candidates take turns, and the best turn of each counts:
on a shared machine the minimum is the least disturbed number, and ratios say more than rates.

"floor" is a hand-written loop that hashes the key, finds the shard, writes the aggregate and frames it: no
futures, no threads, no network, no validation. Nobody can do less and still write this format in Python.

Then come the curves: what a record costs with more keys, streams, shards and bytes, beside the floor and boto3 with the
same records. With many streams, plain "boto3" waits as long as it takes for 500 records of a stream (half a second of CPU time for
a hundred streams). "boto3, 0.1 s" sends what a stream has once its first record has waited as long as ours do: for the buffered
time and a fifth of it. Ours is 0.1 s, or 1 s where the column says so. Most programs do not put as many records as the CPU
can take, and the fewer there are, the fewer share a call: the curve "paced" has 10,000 records a second.
``--save`` writes the curves for the picture of the documentation (``make docs`` draws it).

``make wheel-compiled`` builds a wheel with compiled modules. It is measured, too, if it is in ``dist`` or is named by ``--compiled``.

Peers are installed from PyPI into ``.cache/bench-peers`` once. Without a network they are left out.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import md5
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import cbor2

HERE = Path(__file__).resolve().parent
CANDIDATES = HERE / "producer_candidates.py"
PEERS = HERE.parent / ".cache" / "bench-peers"
PACKAGES = ("aiokpl==0.2.0", "async-kinesis[kpl]==3.0.1", "six")
JSON, CBOR = "application/x-amz-json-1.1", "application/x-amz-cbor-1.1"
SHARDS = 64
COUNT = 60_000
"""User records of a trial: with 100 bytes each, below the default bound of what is buffered."""

SLOW_COUNT = 5_000
LARGE_COUNT = 800
BUFFERED, EXTENSION, ROUND_TRIP = 0.1, 0.02, 0.01
"""Seconds: ``record_max_buffered_time``, a fifth of it that waits for company in a request, the endpoint's latency."""


# -- the sink -----------------------------------------------------------------------------------------------------

_PRECEDING = re.compile(rb'"ExplicitHashKey":\s*"(\d+)",\s*$')


@functools.cache
def stored(shard: int) -> bytes:
    """One result of PutRecords."""
    number = 49 * 10**54 + shard
    return f'{{"SequenceNumber":"{number}","ShardId":"shardId-{shard:012d}"}}'.encode()


@functools.lru_cache(10_000)
def hash_of_key(key: bytes) -> int:
    """Hash key of a partition key."""
    return int.from_bytes(md5(key, usedforsecurity=False).digest(), "big")


def shard_of(before: bytes, tail: bytes, shards: int) -> int:
    """Where an entry belongs, from what precedes and what follows its ``"PartitionKey"``. The KPL's explicit hash key precedes."""
    if found := _PRECEDING.search(before):
        return int(found[1]) * shards >> 128
    _, explicit, rest = tail.partition(b"}")[0].partition(b'"ExplicitHashKey"')
    hash_key = int(rest.split(b'"', 2)[1]) if explicit else hash_of_key(tail.split(b'"', 2)[1])
    return hash_key * shards >> 128


def shards_of(body: bytes) -> int:
    """The shards of the stream of a request, which are the last part of its name."""
    at = body.find(b'"StreamName"', 0, 200)
    if at < 0:
        at = body.rfind(b'"StreamName"')
    return int(body[at:].split(b'"', 4)[3].rpartition(b"-")[2])


def put_answer_in_cbor(body: bytes) -> bytes:
    """The answer to a PutRecords request in CBOR, with strings of known lengths and a stream at its end, as ours has them."""
    shards = int(body[-40:-1].rpartition(b"-")[2])
    parts = body.split(b"lPartitionKey")
    found = []
    for before, tail in pairwise(parts):
        # An explicit hash key, which an aggregate has, precedes the partition key.
        _, explicit, number = before[-60:].rpartition(b"oExplicitHashKey")
        digits = number[2:] if number[0] == 0x78 else number[1:]
        hash_key = int(digits) if explicit else hash_of_key(tail[1 : 1 + tail[0] - 0x60])
        found.append(hash_key * shards >> 128)
    results = [json.loads(stored(shard)) for shard in found]
    return cbor2.dumps({"FailedRecordCount": 0, "Records": results})


def put_answer(shards: tuple[int, ...]) -> bytes:
    """The answer to PutRecords for entries of these shards."""
    return b'{"FailedRecordCount":0,"Records":[%s]}' % b",".join(map(stored, shards))


@functools.cache
def list_shards(shards: int) -> bytes:
    """Shards that divide the hash key space evenly; their number is a power of two."""
    width = 2**128 // shards
    listed = [
        {
            "ShardId": f"shardId-{number:012d}",
            "HashKeyRange": {
                "StartingHashKey": str(number * width),
                "EndingHashKey": str((number + 1) * width - 1),
            },
            "SequenceNumberRange": {"StartingSequenceNumber": "0"},
        }
        for number in range(shards)
    ]
    return json.dumps({"Shards": listed}).encode()


SUMMARY = json.dumps(
    {
        "StreamDescriptionSummary": {
            "StreamName": "bench",
            "StreamStatus": "ACTIVE",
            "OpenShardCount": SHARDS,
            "MaxRecordSizeInKiB": 1024,
        }
    }
).encode()


def answer(target: str, kind: str, body: bytes) -> bytes:
    """What the service would say.

    The shards matter: a producer that checks where its aggregates land would send them again otherwise.
    """
    if kind == CBOR:
        return put_answer_in_cbor(body)
    if target.endswith("PutRecords"):
        # Splitting, because searching for a literal is much faster than any pattern in megabytes of base64.
        parts = body.split(b'"PartitionKey"')
        shards = shards_of(body)
        return put_answer(
            tuple(shard_of(before[-90:], tail[:400], shards) for before, tail in pairwise(parts))
        )
    if target.endswith("ListShards"):
        return list_shards(shards_of(body))
    if target.endswith("DescribeStreamSummary"):
        return SUMMARY
    return b"{}"


def serve(latency: float) -> None:
    """Answer for ever; a thread for each connection."""

    def converse(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        while reader.readline():
            length, target, kind = 0, "", JSON
            while (line := reader.readline()) not in {b"\r\n", b""}:
                name, _, value = line.decode().partition(":")
                if name.lower() == "content-length":
                    length = int(value)
                elif name.lower() == "x-amz-target":
                    target = value.strip()
                elif name.lower() == "content-type":
                    kind = value.strip()
            text = answer(target, kind, reader.read(length))
            if latency:
                time.sleep(latency)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
                b"x-amzn-RequestId: 0\r\nContent-Length: %d\r\n\r\n%s" % (kind.encode(), len(text), text)
            )

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()


@contextmanager
def sink(latency: float = 0.0) -> Iterator[str]:
    """A sink in its own process; gives its URL."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(latency)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


# -- peers --------------------------------------------------------------------------------------------------------


def install_peers() -> tuple[str, str]:
    """Python of the environment with the peers, or why there is none."""
    python = PEERS / ("Scripts" if os.name == "nt" else "bin") / "python"
    wanted = " ".join(PACKAGES)
    stamp = PEERS / ".installed"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return str(python), ""
    print(f"installing {wanted} ...", file=sys.stderr)
    try:
        venv.create(PEERS, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        detail = str(getattr(error, "stderr", None) or error).strip()
        return "", detail.splitlines()[-1]
    stamp.write_text(wanted, encoding="utf-8")
    return str(python), ""


# -- measuring ----------------------------------------------------------------------------------------------------


class Results:
    """The best numbers of each candidate, and why one has none."""

    def __init__(self) -> None:
        self.best: dict[str, dict[str, float]] = {}
        self.missing: dict[str, str] = {}

    def run(
        self,
        name: str,
        endpoint: str,
        count: int,
        python: str = sys.executable,
        compiled: Path | None = None,
        **shape: int,
    ) -> None:
        """One turn in a process of its own; with ``compiled``, of the package in that folder."""
        words = [f"{key}={value}" for key, value in shape.items()]
        try:
            done = subprocess.run(
                [python, str(CANDIDATES), name, endpoint, str(count), *words],
                capture_output=True,
                text=True,
                timeout=240,
                check=True,
                env={**os.environ, **({"PYTHONPATH": str(compiled)} if compiled else {})},
            )
        except subprocess.SubprocessError as error:
            lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
            self.missing[name] = lines[-1] if lines else "it failed"
            return
        numbers: dict[str, float] = json.loads(done.stdout)
        name = " ".join([name, *words, *(["compiled"] if compiled else [])])
        best = self.best.setdefault(name, {})
        for key, value in numbers.items():
            best[key] = min(value, best.get(key, value))

    def cpu(self, name: str) -> float | None:
        """CPU seconds per record, if it was measured."""
        return self.best.get(name, {}).get("cpu")


def compiled_wheel() -> Path | None:
    """The newest wheel of ``make wheel-compiled`` for this Python."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = (HERE.parent / "dist").glob(f"kinesis_sdk-*-{tag}-{tag}-*.whl")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


COMPILED = {"put": "ours", "callback": "ours_called", "put_many": "ours_many"}
"""What is measured with compiled modules, too."""
AT_LEAST = {"ours": 1.4, "ours_called": 1.4, "ours_many": 1.25}
"""How many times cheaper it is then."""


def measure(rounds: int, *, peers: bool, compiled: Path | None = None) -> Results:
    """All turns of all candidates; ``compiled`` is a folder with compiled modules."""
    results = Results()
    peers_python, reason = install_peers() if peers else ("", "left out by --no-peers")
    with sink() as endpoint, sink(ROUND_TRIP) as slow_endpoint:
        for turn in range(rounds):
            for name in ("floor", "ours", "ours_read", "ours_called", "ours_unkept", "ours_many"):
                results.run(name, endpoint, COUNT)
                if compiled is not None and name in COMPILED.values():
                    results.run(name, endpoint, COUNT, compiled=compiled)
            results.run("boto3_plain", endpoint, SLOW_COUNT)
            if turn < (rounds + 1) // 2:  # they take longer, and their ratios are far from their targets
                for cbor in (0, 1):
                    results.run("ours", endpoint, COUNT // 4, size=1_024, cbor=cbor)
                for name in ("large", "large_plain"):
                    results.run(name, endpoint, LARGE_COUNT)
                results.run("large", endpoint, LARGE_COUNT, cbor=1)
                results.run("latency", slow_endpoint, 2_000)
                results.run("codec", endpoint, 0)
                for name in ("aiokpl", "async_kinesis", "async_kinesis_kpl"):
                    if reason:
                        results.missing[name] = reason
                    else:
                        results.run(name, endpoint, SLOW_COUNT, peers_python)
    return results


# -- curves -------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """A line of the benchmark: what a record costs with more of something."""

    title: str
    grows: str
    values: tuple[int, ...]
    fixed: dict[str, int]

    def shape(self, value: int) -> dict[str, int]:
        """The shape of a point."""
        return {**self.fixed, self.grows: value}


CURVES = {
    "keys": Curve("distinct partition keys", "keys", (1_000, 30_000, 1_000_000), {}),
    "streams": Curve("streams of one shard, in turn", "streams", (1, 10, 100, 1_000), {"shards": 1}),
    "wide": Curve("streams of 64 shards, in turn", "streams", (1, 10, 100), {"shards": 64}),
    "paced": Curve(
        "streams of 64 shards, 10,000 records/s", "streams", (1, 10, 100), {"shards": 64, "rate": 10_000}
    ),
    "shards": Curve("shards of one stream", "shards", (1, 64, 1_024), {}),
    "sizes": Curve("bytes of a record", "size", (100, 1_024, 10_240, 51_200), {}),
}
SERIES = {
    "put": "ours",
    "put, 1 s": "ours_long",
    "put_many": "ours_many",
    "floor": "floor",
    "boto3": "boto3_plain",
    "boto3, 0.1 s": "boto3_prompt",
}
PACED = ("ours", "boto3_prompt")
"""Candidates at a given rate: records do not wait as long as it takes for 500 of a stream."""
BY_STREAMS, ONE_STREAM = {"ours_long", "boto3_prompt"}, {"ours_many"}
"""Candidates that only the curves of streams have, and those that need a single stream."""

IN_PICTURE = {"x", "put", "put_many", "floor", "boto3"}
"""What the picture shows of a point; it has four kinds of lines. The curves at a given rate are printed only."""

CALLS = 500


def point(candidate: str, curve: Curve, value: int) -> str:
    """Name of a candidate's results at a point of a curve."""
    return " ".join([candidate, *(f"{key}={number}" for key, number in curve.shape(value).items())])


def measure_curves(results: Results, names: Sequence[str], rounds: int) -> None:
    """All turns of the points of curves."""
    with sink() as endpoint:
        for _ in range(rounds):
            results.run("call", endpoint, CALLS)
            for curve in map(CURVES.__getitem__, names):
                for value in curve.values:
                    shape = curve.shape(value)
                    count = min(COUNT, 48_000_000 // (shape.get("size", 100) + 800), shape.get("rate", COUNT))
                    one = shape.get("streams", 1) == 1
                    for name in PACED if "rate" in shape else SERIES.values():
                        if name in (BY_STREAMS if curve.grows != "streams" else () if one else ONE_STREAM):
                            continue
                        slow = min(count, SLOW_COUNT) if one and name == "boto3_plain" else count
                        results.run(name, endpoint, slow, **shape)


def costs(results: Results, curve: Curve) -> list[dict[str, float]]:
    """CPU microseconds per record at each point of a curve."""
    points = []
    for value in curve.values:
        measured = {label: results.cpu(point(name, curve, value)) for label, name in SERIES.items()}
        points.append({"x": value, **{label: round(cpu * 1e6, 2) for label, cpu in measured.items() if cpu}})
    return points


def report_curves(results: Results, names: Sequence[str]) -> None:
    """Print the curves, and what they have to keep."""
    call = results.cpu("call")
    for name in names:
        curve = CURVES[name]
        print(
            f"\n{'CPU us/record by ' + curve.title:<46}"
            + "".join(f"{label:>14}" for label in SERIES)
            + f"{'calls/1,000':>13}"
        )
        points = costs(results, curve)
        for numbers in points:
            calls = results.best.get(point("ours", curve, int(numbers["x"])), {}).get("calls", 0.0)
            shown = (f"{numbers[label]:>14.2f}" if label in numbers else f"{'':>14}" for label in SERIES)
            print(f"{numbers['x']:>46,}" + "".join(shown) + f"{calls * 1e3:>13.2f}")
        small, large = points[0], points[-1]
        if name == "keys" and {"put", "floor"} <= small.keys() & large.keys():
            for label in {"put", "put_many"} & large.keys():
                growth = large[label] / small[label] / (large["floor"] / small["floor"])
                print(target_line(f"growth of {label} to the floor's", growth, 1.3, most=True))
        if curve.grows == "streams" and call is not None and "rate" not in curve.fixed:
            for numbers in points[1:]:
                calls = results.best.get(point("ours", curve, int(numbers["x"])), {}).get("calls", 0.0)
                rest = (numbers["put"] - calls * call * 1e6) / small["put"] if "put" in numbers else None
                print(target_line(f"{numbers['x']:,} streams, without calls, to one", rest, 1.5, most=True))
        pairs = (("put", "boto3, 0.1 s"), ("put, 1 s", "boto3"), ("put", "boto3"))
        for label, other in pairs if curve.grows == "streams" else pairs[-1:]:
            found = [p[other] / p[label] for p in points if {label, other} <= p.keys()]
            if found:
                print(target_line(f"{label}: records per CPU-second to {other}, least", min(found), 1))


def save_curves(results: Results, path: Path) -> None:
    """Write the curves for the documentation; its text stays."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept["curves"] = [
        {
            "title": curve.title,
            "points": [
                {key: value for key, value in point.items() if key in IN_PICTURE}
                for point in costs(results, curve)
            ],
        }
        for curve in CURVES.values()
        if "rate" not in curve.fixed
    ]
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


# -- the table ----------------------------------------------------------------------------------------------------

ROWS = (
    ("kinesis_sdk, put, futures kept", "ours"),
    ("kinesis_sdk, put, results read", "ours_read"),
    ("kinesis_sdk, put, add_done_callback", "ours_called"),
    ("kinesis_sdk, put, futures dropped", "ours_unkept"),
    ("kinesis_sdk, put_many", "ours_many"),
    ("floor: hash, encode, frame", "floor"),
    ("boto3, 500 records a call", "boto3_plain"),
    ("async-kinesis", "async_kinesis"),
    ("async-kinesis, KPL mode (keys lost)", "async_kinesis_kpl"),
    ("aiokpl", "aiokpl"),
)


def target_line(what: str, value: float | None, target: float, *, most: bool = False, unit: str = "x") -> str:
    """One line about a target."""
    if value is None:
        return f"  {what:<46}{'not measured':>14}"
    met = value <= target if most else value >= target
    sign = "<=" if most else ">="
    return f"  {what:<46}{value:>12.2f} {unit:<3} target {sign} {target:g} {unit:<3}{'met' if met else 'MISSED':>8}"


def report(results: Results) -> None:
    """Print everything."""
    ours, base = results.cpu("ours"), results.cpu("floor")
    if ours:
        print(f"\nkinesis_sdk is {'compiled' if results.best['ours']['compiled'] else 'pure Python'} here")
    print(
        f"\n{'100-byte user records, 64 shards':<38}{'CPU us/record':>14}{'records/CPU-s':>15}{'floor':>9}{'ours is':>10}"
    )
    for label, name in ROWS:
        cpu = results.cpu(name)
        if cpu is None:
            if name in results.missing:
                print(f"{label:<38}  skipped: {re.sub(r'[ ]+', ' ', results.missing[name])[:90]}")
            continue
        above = f"{cpu / base:>8.2f}x" if base else f"{'':>9}"
        faster = f"{cpu / ours:>9.2f}x" if ours else ""
        print(f"{label:<38}{cpu * 1e6:>14.2f}{1 / cpu:>15,.0f}{above}{faster}")

    for label, name in COMPILED.items():
        numbers, cpu = results.best.get(f"{name} compiled"), results.cpu(name)
        if numbers and cpu:
            assert numbers["compiled"], "the wheel holds no compiled modules"
            faster = f"{cpu / numbers['cpu']:.2f} x less than above"
            print(
                f"{'  compiled, ' + label:<38}{numbers['cpu'] * 1e6:>14.2f}{1 / numbers['cpu']:>15,.0f}  {faster}"
            )

    fast, plain = results.best.get("large"), results.best.get("large_plain")
    if fast and plain:
        print(f"\n{'50 KiB user records':<38}{'CPU us/record':>14}{'MB/CPU-s':>15}{'MB/s':>9}{'ours is':>10}")
        for label, numbers in (
            ("kinesis_sdk", fast),
            ("kinesis_sdk, wire_format=cbor", results.best.get("large cbor=1", fast)),
            ("kinesis_sdk, boto3 builds the request", plain),
        ):
            cpu, wall = numbers["cpu"], numbers["wall"]
            size = (50 << 10) / 1e6
            print(
                f"{label:<38}{cpu * 1e6:>14.0f}{size / cpu:>15.0f}{size / wall:>9.0f}{cpu / fast['cpu']:>9.2f}x"
            )

    in_json, in_cbor = (results.cpu(f"ours size=1024 cbor={cbor}") for cbor in (0, 1))
    if in_json and in_cbor:
        print(f"\n{'1 KiB user records':<38}{'CPU us/record':>14}{'MB/CPU-s':>15}{'':>9}{'ours is':>10}")
        for label, cpu in (("kinesis_sdk", in_json), ("kinesis_sdk, wire_format=cbor", in_cbor)):
            print(f"{label:<38}{cpu * 1e6:>14.2f}{1_024 / 1e6 / cpu:>15.0f}{'':>9}{cpu / in_json:>9.2f}x")

    codec = results.best.get("codec")
    if codec:
        print(f"\n{'codec: writing an aggregate':<38}{'us/record':>14}{'':>15}{'':>9}{'ours is':>10}")
        for label, name in (
            ("kinesis_sdk", "ours"),
            ("bare protobuf", "protobuf"),
            ("aws_kinesis_agg", "agg"),
        ):
            print(f"{label:<38}{codec[name] * 1e6:>14.2f}{'':>24}{codec[name] / codec['ours']:>9.2f}x")

    spans = results.best.get("latency")
    if spans:
        bound = BUFFERED + EXTENSION + ROUND_TRIP
        print("\nput to acknowledgement, 1,000 records/s, 100 ms buffered time, endpoint with 10 ms latency")
        print(
            f"  p50 {spans['p50'] * 1e3:.0f} ms, p99 {spans['p99'] * 1e3:.0f} ms; "
            f"bound {bound * 1e3:.0f} ms (buffered time, collection, round trip)"
        )

    def times(name: str) -> float | None:
        other = results.cpu(name)
        return other / ours if other and ours else None

    print("\ntargets")
    print(target_line("CPU per record", ours and ours * 1e6, 4, most=True, unit="us"))
    print(target_line("CPU to the floor's", ours and base and ours / base, 3, most=True))
    called = results.best.get("ours_called")
    extra = (called["cpu"] - called["alone_cpu"]) * 1e6 if called else None
    print(target_line("CPU of add_done_callback, beside put", extra, 1.5, most=True, unit="us"))
    for label, name in COMPILED.items():
        cpu, numbers = results.cpu(name), results.best.get(f"{name} compiled")
        if cpu and numbers:
            print(target_line(f"compiled {label}: to pure Python's", cpu / numbers["cpu"], AT_LEAST[name]))
    print(target_line("records per CPU-second to boto3's", times("boto3_plain"), 1.5))
    print(target_line("records per CPU-second to async-kinesis's", times("async_kinesis"), 15))
    print(target_line("records per CPU-second to aiokpl's", times("aiokpl"), 30))
    print(target_line("50 KiB: throughput to boto3's", plain and fast and plain["cpu"] / fast["cpu"], 2))
    for name, why in results.missing.items():
        if name not in {key for _, key in ROWS}:
            print(f"  {name}: {why}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="turns of each candidate (default: %(default)s)"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave out what has to be installed")
    parser.add_argument(
        "--curves",
        default=",".join(CURVES),
        help="which curves to measure, or none (default: %(default)s)",
    )
    parser.add_argument("--only-curves", action="store_true", help="leave out everything else")
    parser.add_argument(
        "--compiled",
        type=Path,
        metavar="WHEEL",
        default=compiled_wheel(),
        help="a wheel with compiled modules to measure, too (default: the newest one in dist)",
    )
    parser.add_argument("--save", type=Path, help="write all curves into this file")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    curves = [] if options.curves == "none" else options.curves.split(",")
    if unknown := set(curves) - set(CURVES):
        parser.error(f"--curves: no such curve: {', '.join(sorted(unknown))}; there are {', '.join(CURVES)}")
    if options.save and set(curves) != set(CURVES):
        parser.error("--save needs all curves")
    started = time.perf_counter()
    if not options.only_curves:
        with tempfile.TemporaryDirectory() as folder:
            if options.compiled:
                with zipfile.ZipFile(options.compiled) as wheel:
                    wheel.extractall(folder)
            compiled = Path(folder) if options.compiled else None
            report(measure(options.rounds, peers=not options.no_peers, compiled=compiled))
    results = Results()
    measure_curves(results, curves, (options.rounds + 1) // 2)
    report_curves(results, curves)
    for name, why in results.missing.items():
        print(f"  {name}: {why}")
    if options.save:
        save_curves(results, options.save)
    print(f"\n{time.perf_counter() - started:.0f} s, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
