"""The real KPL in its own process, and its acknowledgements."""

from __future__ import annotations

import base64
import itertools
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from integration.java.kpl.install import KPL, putter
from integration.java.processes import Stage

JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
_TICK = 0.05
_SPECIAL = ("äöü-{}", "日本-{}", "😀{}", 'q"uote\\{}', "שלום-{}", "{}" + "x" * 200)
_SIZES = (127, 128, 16_383, 16_385, 51_200)
_EDGES = (0, (1 << 128) - 1, 1 << 127, (1 << 127) - 1, 1 << 126)


class Entry(NamedTuple):
    """A record to put. Its data begins with its unique name and a colon. `place` is its explicit hash key, or None."""

    name: str
    key: str
    place: str | None
    data: bytes


def plan(seed: int, prefix: str, large: float = 0.004) -> Iterator[Entry]:
    """Yield records endlessly: keys in several scripts, some explicit hash keys, sizes around the critical ones.

    Args:
        seed: Seed of the random choices.
        prefix: Start of the names.
        large: Fraction of records of up to 51,200 bytes; the rest have less than 300.
    """
    chance = random.Random(seed)
    for number in itertools.count():
        name = f"{prefix}{number}"
        key = (
            chance.choice(_SPECIAL).format(number)
            if chance.random() < 0.2
            else f"key-{chance.getrandbits(40)}"
        )
        place = None
        if chance.random() < 0.15:
            place = str(chance.choice(_EDGES) if chance.random() < 0.3 else chance.getrandbits(128))
        size = chance.choice(_SIZES) if chance.random() < large else chance.randrange(300)
        yield Entry(name, key, place, f"{name}:".encode().ljust(size, b"."))


class Stored(NamedTuple):
    """The KPL's result for a record.

    Attributes:
        is_ok: Whether the record is stored.
        shard, sequence_number: Its position.
        attempts: Number of attempts.
        errors: Codes of the failed attempts.
    """

    is_ok: bool
    shard: str
    sequence_number: str
    attempts: int
    errors: tuple[str, ...]


def write_properties(folder: Path, endpoint_url: str, ca_file: str, **more: object) -> Path:
    """Write a KPL's properties file: one endpoint for all services, without metrics, and `more` settings; return the file."""
    url = urlsplit(endpoint_url)
    properties = {
        "Region": "us-east-1",
        **{
            f"{service}{part}": value
            for service in ("Kinesis", "Cloudwatch", "Sts")
            for part, value in (("Endpoint", url.hostname), ("Port", url.port))
        },
        "CaCertFile": ca_file,
        "MetricsLevel": "none",
        "LogLevel": "warning",
        "TempDirectory": folder,
        # Long enough that no record expires on a busy machine.
        "RecordTtl": 120_000,
        **more,
    }
    file = folder / "kpl.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
    return file


class Kpl:
    """A KPL. A context manager, which waits until every record has its result. The fake of `stage` must speak TLS.

    Attributes:
        stored: Results by the names of the records, once the with statement has ended.
    """

    def __init__(self, stage: Stage, stream: str, version: str = KPL) -> None:
        folder = stage.folder / f"kpl-{stream}"
        folder.mkdir()
        file = write_properties(folder, stage.kinesis_url, str(stage.ca_file))
        self._results = folder / "results"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["java", *JVM, "-cp", putter(version), "Put", file, stream, self._results],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=stage.environment(),
                start_new_session=True,
            )
        self.stored: dict[str, Stored] = {}

    def put(self, entry: Entry) -> None:
        """Pass a record to the KPL; wait while it has too many."""
        key, data = (base64.b64encode(part).decode() for part in (entry.key.encode(), entry.data))
        self._process.stdin.write(f"{entry.name} {key} {entry.place or '-'} {data}\n".encode())
        self._process.stdin.flush()

    def __enter__(self) -> Kpl:
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            # At the end of its input it waits for its results and ends, and so does its native process.
            self._process.stdin.close()
            code = self._process.wait(180)
        finally:
            self._process.kill()
            self._process.wait()
        if code != 0:
            raise RuntimeError(f"the KPL ended with {code}: {self.log.read_text(errors='replace')[-3000:]}")
        for line in Path(self._results).read_text().splitlines():
            name, outcome, shard, number, attempts, *errors = line.split(" ")
            codes = tuple(code for code in errors[0].split(",") if code) if errors else ()
            self.stored[name] = Stored(outcome == "ok", shard, number, int(attempts), codes)


class Steady:
    """Puts a plan's records with the KPL at an even pace (`rate` per second) from a thread. A context manager, as `Kpl` is.

    Attributes:
        put: Records passed to the KPL so far, by name.
    """

    def __init__(self, kpl: Kpl, entries: Iterator[Entry], rate: int) -> None:
        self._kpl = kpl
        self._entries = entries
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kpl-load", daemon=True)
        self.put: dict[str, Entry] = {}

    @property
    def stored(self) -> dict[str, Stored]:
        return self._kpl.stored

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()
        self._kpl.__exit__()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(_TICK):
            while len(self.put) < (time.monotonic() - began) * self._rate:
                entry = next(self._entries)
                self.put[entry.name] = entry
                self._kpl.put(entry)
