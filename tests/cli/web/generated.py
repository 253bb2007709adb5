"""Fleets of any size that move, lag, fall silent and hang: for tests of the console without AWS and without time."""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.admin import (
    FleetView,
    LagReading,
    LagSource,
    LeaseState,
    LeaseView,
    Move,
    OwnerKind,
    OwnerView,
    Problem,
    Severity,
    Totals,
)
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.merge import ShardRecord
from kinesis_sdk.admin.reading import RecordFilter
from kinesis_sdk.admin.search import Search
from kinesis_sdk.cli.web.hub import MakeWatch
from kinesis_sdk.common.errors import ConfigError, InvalidPositionError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

HOSTILE = '<script>window.hacked = 1</script>"\'><img src=x onerror="window.hacked = 1">\u202e'
"""A text that does harm wherever it is not shown as text."""

START = 1_790_000_000.0
STEP = 2.0
RETENTION = 86_400.0
_SPACE = 2**128


def shard_name(number: int) -> str:
    return f"shardId-{number:012d}"


class GeneratedFleet:
    """A fleet whose next view is a function of its seed and of the number of views before."""

    def __init__(
        self,
        shards: int = 1000,
        owners: int = 40,
        *,
        seed: int = 1,
        application: str = "billing",
        hostile: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.application = application
        self.ticks = 0
        self.ids = [
            f"zone-{'abc'[n * 3 // owners]}|{'jvm' if n % 11 == 5 else 'web'}{n:02d}:{self.random.randrange(1000, 9999)}"
            for n in range(owners)
        ]
        if hostile:
            self.ids[1] = f"zone-a|{HOSTILE}"
        # An older generation of shards of which the upper half was split: fewer, wider ranges before.
        split = shards // 6 * 2
        first = shards - split // 2
        self.shards: list[dict[str, Any]] = []
        for n in range(first):
            start, end = _SPACE * n // first, _SPACE * (n + 1) // first - 1
            self.shards.append(
                {
                    "id": shard_name(n),
                    "start": start,
                    "end": end,
                    "parents": (),
                    "born": START - 3 * 86_400,
                    "closed": None,
                }
            )
        for n in range(split):
            parent = self.shards[first - split + n] if n % 2 == 0 else self.shards[first - split + n - 1]
            if n % 2 == 0:
                parent["closed"] = START - 20_000 - 37 * (n // 2 % 60)
            middle = (parent["start"] + parent["end"]) // 2
            low, high = (parent["start"], middle) if n % 2 == 0 else (middle + 1, parent["end"])
            self.shards.append(
                {
                    "id": shard_name(first + n),
                    "start": low,
                    "end": high,
                    "parents": (parent["id"],),
                    "born": parent["closed"],
                    "closed": None,
                }
            )
        self.leased = [shard for shard in self.shards if shard["closed"] is None]
        count = len(self.leased)
        self.owner = [n * owners // count if count >= owners else n for n in range(count)]
        self.lag = [self.random.choice((0, 200, 300, 800, 1500)) for _ in range(count)]
        self.kbps = [abs(self.random.gauss(40, 15)) for _ in range(count)]
        self.counter = [self.random.randrange(100, 9000) for _ in range(count)]
        self.trends: list[list[int | None]] = [[] for _ in range(count)]
        self.owner_trends: list[list[int | None]] = [[] for _ in range(owners)]
        self.moves: list[Move] = []
        self.stuck = {
            n: lag
            for n, lag in ((count * 85 // 100, 81_640_000), (count * 44 // 100, 766_000))
            if count >= 10
        }
        self.free = [count // 3, count // 2] if count >= 10 else []
        self.silent = owners * 2 // 3 if owners >= 5 else -1
        self.hung = count * 44 // 100

    def view(self) -> FleetView:
        """Return the next view, `STEP` seconds after the last one."""
        rng = self.random
        self.ticks += 1
        at = START + self.ticks * STEP
        count = len(self.leased)
        for n in range(count):
            if n in self.stuck:
                self.stuck[n] += int(STEP * 1000)
                self.lag[n] = self.stuck[n]
            elif n in self.free or self.owner[n] == self.silent:
                self.lag[n] += int(STEP * 1000) if self.lag[n] or self.ticks > 1 else 330_000
                self.lag[n] = max(self.lag[n], 330_000)
            elif rng.random() < 0.15:
                self.lag[n] = rng.choice((0, 0, 0, 200, 400, 700, 900, 1500, 2600))
            if n not in self.free and self.owner[n] != self.silent:
                self.counter[n] += 1
        if count >= 10 and self.ticks % 3 == 0:
            n = rng.randrange(count)
            if n not in self.free and n not in self.stuck and self.owner[n] != self.silent:
                before = self.owner[n]
                after = rng.randrange(len(self.ids))
                if after not in (self.silent, before):
                    self.owner[n] = after
                    self.moves.insert(
                        0,
                        Move(
                            at=at,
                            lease_key=self.leased[n]["id"],
                            shard_id=self.leased[n]["id"],
                            before=self.ids[before],
                            after=self.ids[after],
                            reason=rng.choice(("handoff", "stolen", "expired")),
                            idle=round(rng.random() * 3, 1),
                        ),
                    )
                    del self.moves[50:]
        if self.ticks == 1:
            for _ in range(40):
                self._push_trends()
        elif self.ticks % 5 == 0:
            self._push_trends()
        leases = tuple(self._lease(n, at) for n in range(count))
        owners = tuple(self._owner(n, held) for n, held in enumerate(self._by_owner()))
        worst = max(range(count), key=lambda n: self.lag[n], default=None)
        return FleetView(
            application=self.application,
            streams=("orders",),
            at=at,
            watched=self.ticks * STEP,
            table_age=0.4,
            retention=RETENTION,
            totals=Totals(
                leases=count,
                finished=len(self.shards) - count,
                unowned=len(self.free),
                owners=len(self.ids) - (self.silent >= 0),
                silent_owners=int(self.silent >= 0),
                measured=count,
                worst_lag_millis=None if worst is None else self.lag[worst],
                worst_shard=None if worst is None else self.leased[worst]["id"],
                total_lag_millis=sum(self.lag),
                behind_a_minute=sum(lag > 60_000 for lag in self.lag),
                throughput_kbps=sum(self.kbps),
                moves=len(self.moves),
            ),
            problems=tuple(self._problems()),
            owners=owners,
            leases=leases,
            moves=tuple(self.moves),
            calls_per_minute={"Scan": 12, "ListShards": 1, "DescribeStreamSummary": 1, "GetRecords": 48},
        )

    def _push_trends(self) -> None:
        for n, trend in enumerate(self.trends):
            trend.append(max(0, self.lag[n] - (0 if trend else 400)))
            del trend[:-60]
        for trend, owned in zip(self.owner_trends, self._by_owner(free=True), strict=True):
            trend.append(max((self.lag[n] for n in owned), default=0))
            del trend[:-60]

    def _by_owner(self, *, free: bool = False) -> list[list[int]]:
        """Return the leases of each owner; `free` includes those that it had last and nobody has now."""
        found: list[list[int]] = [[] for _ in self.ids]
        for n, owner in enumerate(self.owner):
            if free or n not in self.free:
                found[owner].append(n)
        return found

    def _lease(self, n: int, at: float) -> LeaseView:
        shard = self.leased[n]
        free = n in self.free
        owner = None if free else self.owner[n]
        silent = owner == self.silent
        state = LeaseState.UNOWNED if free else LeaseState.SILENT if silent else LeaseState.HELD
        left = RETENTION - self.lag[n] / 1000
        return LeaseView(
            lease_key=shard["id"],
            shard_id=shard["id"],
            state=state,
            owner=None if owner is None else self.ids[owner],
            kind=None if owner is None else OwnerKind.SDK,
            counter=self.counter[n],
            checkpoint=ExtendedSequenceNumber(str(49_650_000_000 * 10**40 + int(at) * 1000 + n), n % 20),
            parents=shard["parents"],
            hash_key_range=HashKeyRange(shard["start"], shard["end"]),
            throughput_kbps=self.kbps[n],
            renewed_ago=None if free else 1.5 if not silent else 48.0,
            checkpointed_ago=self.lag[n] / 1000 + 2,
            handler_seconds=766.0 if n == self.hung and self.stuck else None,
            lag=LagReading(millis=self.lag[n], age=2.0, source=LagSource.PROGRESS),
            trend=tuple(self.trends[n]),
            retention_left=left,
        )

    def _owner(self, n: int, held: list[int]) -> OwnerView:
        return OwnerView(
            worker_id=self.ids[n],
            group=self.ids[n].partition("|")[0],
            kind=OwnerKind.KCL3 if "jvm" in self.ids[n] else OwnerKind.SDK,
            lease_keys=tuple(self.leased[k]["id"] for k in held),
            silent_for=48.0 if n == self.silent else None,
            worst_lag_millis=max((self.lag[k] for k in held), default=None),
            throughput_kbps=sum(self.kbps[k] for k in held),
            trend=tuple(self.owner_trends[n]),
        )

    def _problems(self) -> list[Problem]:
        if not self.stuck:
            return []
        (near, lag), (hung, _) = self.stuck.items()
        shard = self.leased
        left = RETENTION - lag / 1000
        found = [
            Problem(
                code="near-horizon",
                severity=Severity.ERROR,
                title="near the horizon",
                text=f"Records are {lag / 3_600_000:.1f} h behind and are kept for 24 h: the first are lost in {left / 60:.0f} min.",
                remedy="Lengthen the retention now, then find out why the shard is slow.",
                command=Command.of("show", application=self.application),
                lease_key=shard[near]["id"],
                shard_id=shard[near]["id"],
                owner=self.ids[self.owner[near]],
            ),
            Problem(
                code="handler",
                severity=Severity.ERROR,
                title="handler hangs",
                text="process_records has been running for 12 min 46 s; the lease was renewed 2 s ago.",
                remedy="Look at the worker's stack; restart the worker if it waits for something that will not come.",
                command=Command.of("explain", application=self.application, shard=shard[hung]["id"]),
                lease_key=shard[hung]["id"],
                shard_id=shard[hung]["id"],
                owner=self.ids[self.owner[hung]],
            ),
            Problem(
                code="silent-owner",
                severity=Severity.ERROR,
                title="silent owner",
                text=f"{self.ids[self.silent]} has not renewed its leases for 48 s.",
                remedy="Start a worker, or restart this one.",
                command=Command.of(
                    "explain",
                    application=self.application,
                    shard=next(
                        (shard[n]["id"] for n, owner in enumerate(self.owner) if owner == self.silent),
                        shard[0]["id"],
                    ),
                ),
                owner=self.ids[self.silent],
                count=sum(owner == self.silent for owner in self.owner),
            ),
        ]
        found.extend(
            Problem(
                code="unowned",
                severity=Severity.WARNING,
                title="no owner",
                text="No worker has held this lease for 1 min 51 s.",
                remedy="Start a worker, or find out why none takes it.",
                command=Command.of("explain", application=self.application, shard=shard[n]["id"]),
                lease_key=shard[n]["id"],
                shard_id=shard[n]["id"],
            )
            for n in self.free
        )
        return found


class ManualWatch:
    """A watch that passes on a view when a test says so."""

    def __init__(self, fleet: GeneratedFleet, on_view: Callable[[FleetView], None]) -> None:
        self.fleet = fleet
        self.on_view = on_view
        self.starts = 0
        self.focused: frozenset[str] = frozenset()
        self.refreshed = False
        self.waits: tuple[str, float] | None = None
        self.stops = 0

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None:
        self.stops += 1

    def focus(self, lease_keys: frozenset[str]) -> None:
        self.focused = lease_keys

    def refresh(self) -> None:
        self.refreshed = True

    def waiting(self) -> tuple[str, float] | None:
        return self.waits

    def close(self) -> None:
        self.stop()

    def tick(self) -> FleetView:
        view = self.fleet.view()
        self.on_view(view)
        return view


class TimedWatch(ManualWatch):
    """A watch with a thread, for tests in a browser."""

    def __init__(self, fleet: GeneratedFleet, on_view: Callable[[FleetView], None], interval: float) -> None:
        super().__init__(fleet, on_view)
        self._interval = interval
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        super().start()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._ended,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        super().stop()
        self._ended.set()

    def _run(self, ended: threading.Event) -> None:
        while True:
            self.tick()
            if ended.wait(self._interval):
                return


OPERATIONS = ("rewind", "skip-to", "release", "move", "pin", "unpin", "drain", "undrain")


class GeneratedBackend:
    """The backend of the console with generated fleets, by application."""

    def __init__(self, fleets: Mapping[str, GeneratedFleet], *, interval: float | None = None) -> None:
        self.fleets = fleets
        self.interval = interval
        self.watches: dict[str, ManualWatch] = {}
        self.made: list[Mapping[str, Any]] = []
        self.looks: list[tuple[str, ...]] = []

    @property
    def options(self) -> tuple[str, ...]:
        return ("--region", "eu-west-1")

    def describe(self) -> Mapping[str, Any]:
        return {"region": "eu-west-1", "endpoint": None, "account": "123456789012"}

    def applications(self) -> list[Mapping[str, Any]]:
        return [
            {"name": name, "status": "ACTIVE", "rows": len(fleet.leased), "created": START - 9_000_000}
            for name, fleet in self.fleets.items()
        ]

    def read_fleets(self, names: Sequence[str], on_view: Callable[[FleetView], None]) -> None:
        self.looks.append(tuple(names))
        for name in names:
            on_view(self.fleets[name].view())

    def make_watch(self, application: str) -> MakeWatch:
        def make(on_view: Callable[[FleetView], None]) -> ManualWatch:
            fleet = self.fleets[application]
            watch = (
                ManualWatch(fleet, on_view)
                if self.interval is None
                else TimedWatch(fleet, on_view, self.interval)
            )
            self.watches[application] = watch
            return watch

        return make

    def stream(self, name: str) -> Mapping[str, Any]:
        fleet = next(iter(self.fleets.values()))
        return {
            "name": name,
            "at": START + fleet.ticks * STEP,
            "retention": RETENTION,
            "mode": "PROVISIONED",
            "shards": [
                {
                    "id": shard["id"],
                    "start": shard["start"] / _SPACE,
                    "width": (shard["end"] - shard["start"] + 1) / _SPACE,
                    "open": shard["closed"] is None,
                    "parents": list(shard["parents"]),
                    "from": shard["born"],
                    "until": shard["closed"],
                }
                for shard in fleet.shards
            ],
        }

    def search(
        self, *, stream: str, key: str, where: str, minutes: int
    ) -> tuple[Search, Callable[[Any], Any], Any]:
        """Search for the records of `records`, each in a shard of its own."""
        wanted = RecordFilter.make([key] if key else [], where=where or None)
        page = self.records(stream=stream, shard="", position="", iterator=None, limit=12)["records"]

        def reading() -> Generator[ShardRecord, None, None]:
            for number, row in enumerate(page):
                record = UserRecord(
                    data=base64.b64decode(row["data"]),
                    partition_key=row["key"],
                    sequence_number=row["sequence"],
                    sub_sequence_number=row["sub"],
                    approximate_arrival_timestamp=datetime.fromtimestamp(row["arrived"], timezone.utc),
                )
                yield ShardRecord(shard_name(number), record)

        records = reading()
        shown = {(row["sequence"], row["sub"]): row for row in page}
        search = Search(records, wanted, limit=100, seconds=60.0)
        return (
            search,
            lambda one: {
                "shard": one.shard_id,
                **shown[one.record.sequence_number, one.record.sub_sequence_number],
            },
            records,
        )

    def records(
        self, *, stream: str, shard: str, position: str, iterator: str | None, limit: int
    ) -> Mapping[str, Any]:
        if position == "at:0":
            raise InvalidPositionError("there is no such position", operation="GetShardIterator")
        payloads = [
            json.dumps({"id": 881, "total": 1250, "currency": "EUR", "items": [{"sku": "A-7", "count": 2}]}),
            json.dumps({"id": 882, "note": HOSTILE}),
            HOSTILE,
            "a plain line of text, in UTF-8: Grüße, 東京",
        ]
        rows = []
        for n in range(min(limit, 12)):
            text = payloads[n % 4]
            rows.append(
                {
                    "arrived": START + n * 0.97,
                    "sequence": str(49_650_000_000 * 10**40 + n // 3),
                    "sub": n % 3,
                    "key": HOSTILE if n == 5 else f"customer-{n * 7 % 60}",
                    "size": len(text.encode()),
                    "kind": "json" if text.startswith("{") else "text",
                    "text": text,
                    "whole": json.dumps(json.loads(text), indent=2) if text.startswith("{") else text,
                    "data": base64.b64encode(text.encode()).decode(),
                    "truncated": False,
                    "aggregated": True,
                    "headers": [["tenant", "acme"], [HOSTILE, HOSTILE]] if n == 0 else [],
                }
            )
        rows.append(
            {
                "arrived": START + 20,
                "sequence": str(49_650_000_000 * 10**40 + 9),
                "sub": 0,
                "key": "binary",
                "size": 16,
                "kind": "hex",
                "text": "00 ff 10 80 de ad be ef 00 01 02 03 04 05 06 07",
                "data": base64.b64encode(
                    bytes.fromhex("00 ff 10 80 de ad be ef 00 01 02 03 04 05 06 07")
                ).decode(),
                "whole": "00000000  00 ff 10 80 de ad be ef 00 01 02 03 04 05 06 07  ................",
                "truncated": False,
                "aggregated": False,
                "headers": [],
            }
        )
        return {
            "records": rows,
            "behind": 4200,
            "tip": False,
            "next": f"after:{rows[-1]['sequence']}",
            "iterator": None,
            "children": [],
        }

    def plan(
        self, application: str, request: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Callable[[Callable[[str], None]], Mapping[str, Any]]]:
        operation = request.get("operation")
        if operation not in OPERATIONS:
            raise ConfigError("operation", operation, f"one of {', '.join(OPERATIONS)}")
        subject = " ".join(
            [*request.get("leases", []), *([request["worker"]] if "worker" in request else [])]
        )

        def act(line: Callable[[str], None]) -> Mapping[str, Any]:
            self.made.append(request)
            line("Written. Waiting for the owner to notice.")
            return {"text": "Noticed after 1.3 s by zone-a|web01:2810.", "noticed": 1.3}

        return {
            "title": f"{operation} {subject}",
            "command": f"kinesis-sdk leases {operation} {application} --shard {subject}",
            "effects": ["Records since 09:00 UTC are processed again: 4 h 12 min, about 1.0 million."],
            "warnings": ["What the handler stored outside the lease table is not undone."],
            "writes": [
                {
                    "title": f"UpdateItem {application} {subject}",
                    "lines": [
                        "SET checkpoint = 4966…3327641, leaseCounter = 18293",
                        "REMOVE pendingCheckpoint",
                        "IF leaseCounter = 18291",
                    ],
                }
            ],
        }, act
