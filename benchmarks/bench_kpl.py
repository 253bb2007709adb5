"""The real KPL beside this package: CPU time of a record, in one run, at one endpoint that speaks TLS.

    python benchmarks/bench_kpl.py [--sizes 100 1024 51200] [--rounds 2] [--warm-up 10] [--compiled WHEEL]

Needs Java 17, Maven, openssl and ``/proc``; says what is missing otherwise. Maven fetches the KPL, whose jar carries its native
process (see `integration/java/kpl`), into ``.cache`` once.

User records with 1,000 partition keys for 64 shards, from `put` until all are acknowledged. The endpoint is the sink of
`bench_producer.py` behind `tls_front.py`, both in processes of their own that do not count; both clients verify its certificate.
CPU of the KPL is that of its process tree, JVM and native process, from ``/proc``; ours is that of our process, all threads
included. Both aggregate with their default settings, without metrics, with a rate limit that does not limit.

A turn has 53,333 records of 100 bytes, 26,315 of 1 KiB or 923 of 50 KiB, on both sides. Start-up and warm-up count
for neither side: the KPL's JVM and native process live through the whole run and first put ``--warm-up`` turns, which compiles
Java's code; CPU is read before and after each turn. Ours starts anew each round and drops its first turn. Each round takes four turns
of the KPL for each way to put, then four of each of ours. The best turn counts, on both sides. A turn in which the KPL sends more
than 1 % of the records again ends the run.

``put`` keeps the futures and ``put, callback`` adds one to each record, on both sides. The KPL has no call for many records, so
``put_many`` is beside its ``put``. The KPL's applications must hold themselves back (`getOutstandingRecordsCount`); here at
50,000 records or 24 MB.

Each way is measured in JSON and in CBOR, and with compiled modules, too, if a wheel of ``make wheel-compiled`` is in ``dist`` or is named
by ``--compiled``. The targets are those of the best row, which a user can have by a setting and a wheel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench_java import cpu_of  # noqa: E402
from bench_producer import COUNT, Results, compiled_wheel, sink, target_line  # noqa: E402
from producer_candidates import REGION, TRIALS, Shape  # noqa: E402
from tls_front import make_certificate, tls_front  # noqa: E402

from integration.java.kpl.install import KPL, program  # noqa: E402
from integration.java.kpl.producer import write_properties  # noqa: E402
from integration.localstack.install import CannotInstallError  # noqa: E402
from integration.localstack.server import family  # noqa: E402

SIZES = (100, 1_024, 51_200)
LARGEST = 1_000_000
OUTSTANDING, OUTSTANDING_BYTES = 50_000, 24_000_000
PATIENCE = 600.0
"""Seconds that a turn of the KPL may take."""

WAYS = (
    ("put", "ours", "keep"),
    ("put, callback", "ours_called", "call"),
    ("put_many", "ours_many", "keep"),
)
LEAST = 5.0
"""How many times cheaper than the KPL's a `put` is, at each size."""

_LOGBACK = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target><encoder><pattern>%-5level %logger{36} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


class Cost(NamedTuple):
    """CPU microseconds of a record, in the JVM and in the native process."""

    java: float
    native: float

    @property
    def all(self) -> float:
        """Both."""
        return self.java + self.native


class Kpl:
    """A KPL that puts a turn's records when told.

    Args:
        process: ``PutTurns.java``.
        count: Records of a turn.
        log: Its standard error.
    """

    def __init__(self, process: subprocess.Popen[str], count: int, log: Path) -> None:
        self._process, self._count, self._log = process, count, log

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            if answer := self._process.stdout.readline().strip():
                return answer
        except BrokenPipeError:
            pass  # it has ended: its log says why
        finally:
            watchdog.cancel()
        tail = self._log.read_text(errors="replace")[-3_000:]
        raise RuntimeError(f"the KPL ended, or a turn took more than {PATIENCE:.0f} s: {tail}")

    def _cpu(self) -> tuple[float, float]:
        pid = self._process.pid
        native = sum(cpu_of(child) for child in family(pid))
        return cpu_of(pid) - native, native

    def turn(self, way: str) -> Cost:
        """Put the records of a turn; ``keep`` or ``call`` says what becomes of their futures."""
        before = self._cpu()
        answer = self._ask(way)
        after = self._cpu()
        assert answer == "done", answer
        failed, repeated = map(int, self._ask("results").split())
        if failed:
            raise RuntimeError(f"{failed:,} records of the KPL failed")
        if repeated > self._count // 100:
            raise RuntimeError(
                f"{repeated:,} of {self._count:,} records took the KPL several attempts, which would flatter ours"
            )
        return Cost(*((late - early) / self._count * 1e6 for early, late in zip(before, after, strict=True)))

    def best(self) -> dict[str, Cost]:
        """The best cost of each way, of as many turns as a candidate of ours has; the ways take turns."""
        turns = [{way: self.turn(way) for way in ("keep", "call")} for _ in range(TRIALS)]
        return {
            way: min((turn[way] for turn in turns), key=lambda cost: cost.all) for way in ("keep", "call")
        }


@contextmanager
def start_kpl(class_path: str, folder: Path, endpoint: str, certificate: Path, size: int) -> Iterator[Kpl]:
    """A KPL for the length of a with statement."""
    folder.mkdir()
    properties = write_properties(folder, endpoint, str(certificate), RateLimit=10_000)
    logback, log = folder / "logback.xml", folder / "log"
    logback.write_text(_LOGBACK)
    count = turn_of(size)
    arguments = [Shape().names[0], count, size, min(OUTSTANDING, OUTSTANDING_BYTES // size)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [
                "java", f"-Dlogback.configurationFile={logback}", "-cp", class_path, "PutTurns", properties,
                *map(str, arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )  # fmt: skip
    try:
        yield Kpl(process, count, log)
    finally:
        # At the end of its input it ends, and so does its native process.
        process.communicate()


def turn_of(size: int) -> int:
    """Records of a turn."""
    return min(COUNT, 48_000_000 // (size + 800))


def measure(
    kpl: Kpl, endpoint: str, size: int, rounds: int, compiled: Path | None
) -> list[tuple[dict[str, Cost], Results]]:
    """Costs of each round: the KPL's by way, and ours; ``compiled`` is a folder with compiled modules."""
    found = []
    for _ in range(rounds):
        theirs = kpl.best()
        ours = Results()
        for _, candidate, _ in WAYS:
            for cbor in (0, 1):
                for folder in (None, compiled) if compiled else (None,):
                    ours.run(candidate, endpoint, turn_of(size), compiled=folder, size=size, cbor=cbor)
        if ours.missing:
            raise RuntimeError(f"a candidate failed: {ours.missing}")
        found.append((theirs, ours))
    return found


def report(found: list[tuple[dict[str, Cost], Results]], size: int) -> None:
    """Print a size's table: the best turns, their ratio, the least and the greatest ratio of a round, and the target of `put`."""
    print(
        f"\n{f'{size:,} B, {turn_of(size):,} records a turn':<32}{'KPL':>8}{'java + native':>18}"
        f"{'kinesis_sdk':>13}{'ratio':>8}{'rounds':>16}"
    )
    most = 0.0
    for label, candidate, way in WAYS:
        best = min((theirs[way] for theirs, _ in found), key=lambda cost: cost.all)
        for cbor, wire_format in enumerate(("", ", CBOR")):
            for suffix in ("", " compiled"):
                name = f"{candidate} size={size} cbor={cbor}{suffix}"
                if name not in found[0][1].best:
                    continue
                numbers = [ours.best[name] for _, ours in found]
                assert all(bool(one["compiled"]) == bool(suffix) for one in numbers), f"{name}: not so"
                costs = [one["cpu"] * 1e6 for one in numbers]
                ratios = [theirs[way].all / cost for (theirs, _), cost in zip(found, costs, strict=True)]
                split = f"{best.java:.1f} + {best.native:.1f}"
                spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
                ratio = best.all / min(costs)
                if candidate == "ours":
                    most = max(most, ratio)
                print(
                    f"{label + wire_format + suffix:<32}{best.all:>8.1f}{split:>18}{min(costs):>13.2f}"
                    f"{ratio:>7.1f}x{spread:>16}"
                )
    print(target_line("the best put to the KPL's", most, LEAST))
    sys.stdout.flush()


def installed() -> str:
    """What makes ours cheaper, and is installed."""
    found = []
    for name in ("pybase64", "msgspec"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    class_path = program(Path(__file__).with_name("PutTurns.java"))
    os.environ.update(
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="x",
        AWS_DEFAULT_REGION=REGION,
        AWS_EC2_METADATA_DISABLED="true",
    )
    print(
        f"CPU us of a record: KPL {KPL} and kinesis_sdk at one endpoint with TLS, 1,000 keys, 64 shards; best of {TRIALS} turns in each of "
        f"{options.rounds} rounds"
    )
    print(
        f"installed: {installed()}; compiled modules: {options.compiled.name if options.compiled else 'not measured'}"
    )
    with tempfile.TemporaryDirectory() as name, sink() as plain:
        folder = Path(name)
        certificate, key = make_certificate(folder)
        os.environ["AWS_CA_BUNDLE"] = str(certificate)
        compiled = None
        if options.compiled:
            compiled = folder / "compiled"
            with zipfile.ZipFile(options.compiled) as wheel:
                wheel.extractall(compiled)
        with tls_front(int(plain.rpartition(":")[2]), certificate, key) as port:
            endpoint = f"https://127.0.0.1:{port}"
            for size in options.sizes:
                with start_kpl(class_path, folder / f"kpl-{size}", endpoint, certificate, size) as kpl:
                    for number in range(options.warm_up):
                        print(f"{size:,} B: warm-up {number + 1} of {options.warm_up}", file=sys.stderr)
                        kpl.turn(("keep", "call")[number % 2])
                    report(measure(kpl, endpoint, size, options.rounds, compiled), size)
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="bytes of a record")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of turns (default: %(default)s)")
    parser.add_argument(
        "--warm-up", type=int, default=10, help="the KPL's turns that do not count (default: %(default)s)"
    )
    parser.add_argument(
        "--compiled",
        type=Path,
        metavar="WHEEL",
        default=compiled_wheel(),
        help="a wheel with compiled modules to measure, too (default: the newest one in dist)",
    )
    options = parser.parse_args()
    if not all(1 <= size <= LARGEST for size in options.sizes):
        parser.error(f"--sizes: each must be from 1 to {LARGEST:,} bytes")
    if options.rounds < 1 or options.warm_up < 1:
        parser.error("--rounds and --warm-up must be at least 1")
    if not Path("/proc/self/stat").exists():
        print("skipped: CPU of the KPL's processes is read from /proc, which this system does not have")
        return 0
    if shutil.which("openssl") is None:
        print("skipped: there is no openssl on the PATH, which makes the endpoint's certificate")
        return 0
    try:
        run(options)
    except CannotInstallError as error:
        print(f"skipped: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
