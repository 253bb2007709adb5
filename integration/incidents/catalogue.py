"""The fourteen incidents: how each is caused and healed, and what each view must say in which time."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from integration.commands import CLI, execute
from integration.incidents.fleet import (
    APPLICATION,
    ERROR,
    HANG_UP,
    POISON,
    STREAM,
    TARGET,
    Fleet,
)


@dataclass(frozen=True)
class Says:
    """A view must say something within some time.

    Attributes:
        patterns: Regular expressions that a single answer must match, in its codes or its text.
        within: Seconds after the beginning of the incident.
    """

    patterns: tuple[str, ...]
    within: float


@dataclass(frozen=True)
class Calm:
    """A view must answer, and must not name a problem other than `allowed` codes."""

    allowed: frozenset[str] = frozenset()


Expected = Mapping[str, "Says | Calm"]


@dataclass(frozen=True)
class Incident:
    """An incident.

    Attributes:
        name: For the command line.
        what: What happens, for the table.
        begin: Causes it.
        expected: What the views must say, by name. Other views are asked too, but can say anything.
        lasts: Minimum duration, in seconds.
        heal: Ends it.
        never: Regular expressions that no answer may ever match.
        leaves_workers: Whether workers are running afterwards, so that every record must be processed in the end.
    """

    name: str
    what: str
    begin: Callable[[Fleet], None]
    expected: Expected
    lasts: float = 0.0
    heal: Callable[[Fleet], None] = lambda _fleet: None
    never: tuple[str, ...] = ()
    leaves_workers: bool = True


def _all(views: str, says: Says | Calm) -> dict[str, Says | Calm]:
    return dict.fromkeys(views.split(), says)


# -- how they are made ------------------------------------------------------------------------------------------------


def _hang(fleet: Fleet) -> None:
    fleet.age_next(90)
    fleet.load.put(HANG_UP, shard=2)


def _poison(fleet: Fleet) -> None:
    fleet.age_next(90)
    fleet.load.put(POISON, shard=2)


_FROZEN = "frozen"


def _freeze(fleet: Fleet) -> None:
    pid = fleet.owner_process(TARGET)
    (fleet.folder / _FROZEN).write_text(str(pid))
    os.kill(pid, signal.SIGSTOP)


def _thaw(fleet: Fleet) -> None:
    os.kill(int((fleet.folder / _FROZEN).read_text()), signal.SIGCONT)


def _kill(fleet: Fleet) -> None:
    os.kill(fleet.owner_process(TARGET), signal.SIGKILL)


def _hot(fleet: Fleet) -> None:
    fleet.load.heat()


def _throttle(fleet: Fleet) -> None:
    fleet.fault(kind="throttle", stream=APPLICATION, probability=0.6)


def _reshard(fleet: Fleet) -> None:
    fleet.kinesis.split_shard(StreamName=STREAM, ShardToSplit=TARGET, NewStartingHashKey=str(5 * 2**128 // 8))
    fleet.kinesis.merge_shards(
        StreamName=STREAM,
        ShardToMerge="shardId-000000000000",
        AdjacentShardToMerge="shardId-000000000001",
    )


def _expire(fleet: Fleet) -> None:
    fleet.load.pause()
    fleet.fault(kind="expired_credentials")


def _clear(fleet: Fleet) -> None:
    fleet.clear_faults()
    fleet.load.start()


def _hang_aws(fleet: Fleet) -> None:
    fleet.load.pause()
    fleet.freeze_aws()


def _thaw_aws(fleet: Fleet) -> None:
    fleet.thaw_aws()
    fleet.load.start()


def _stop(fleet: Fleet) -> None:
    fleet.load.pause()
    fleet.age_next(90)
    fleet.workers.end()
    fleet.load.put(shard=2)


def _foreign_row(fleet: Fleet) -> None:
    shard = "shardId-000000000777"
    row = {**fleet.rows()[TARGET], "leaseKey": {"S": shard}, "shardId": {"S": shard}}
    for attribute in ("leaseOwner", "handoffOwner"):
        row.pop(attribute, None)
    fleet.dynamodb.put_item(TableName=APPLICATION, Item=row)


def _full_disk(fleet: Fleet) -> None:
    """Put failing records, with a spool that has room for only some of them."""
    records = fleet.folder / "unsent.ndjson"
    records.write_text("".join(f'{{"id": "{number}"}}\n' for number in range(500)))
    fleet.fault(kind="partial", operation="PutRecords")
    # A limit on the size of files acts like a full disk: the rest of a write is rejected.
    result = execute(
        [
            *(
                *CLI,
                "put",
                STREAM,
                str(records),
                "--spool",
                "unsent.spool",
                "--ttl",
                "2s",
                "--key",
                "id",
                "--format",
                "ndjson",
            ),
            *("--endpoint-url", fleet.endpoint_url),
        ],
        cwd=fleet.folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (32_768, 32_768)),
    )
    (fleet.folder / "put.log").write_text(f"{result.stdout}{result.stderr}exit {result.returncode}\n")


# -- what they are ----------------------------------------------------------------------------------------------------

INCIDENTS = (
    Incident(
        "hang",
        "a handler hangs",
        _hang,
        {
            # A call is a problem once it runs for a minute.
            **_all("top console", Says((r"\bhandler\b", "process_records runs for"), 100)),
            **_all("explain show lag", Says((r"\bhandler\b", "process_records runs for"), 130)),
            "exporter": Says(('code="handler",severity="error"} 1',), 100),
            "alerts": Says(("KinesisHandlerStuck", f"on {TARGET}"), 110),
            "doctor": Says((r"\bhandler\b", "0002: process_records runs for"), 100),
        },
        heal=Fleet.mend,
    ),
    Incident(
        "poison",
        "a handler raises on one record",
        _poison,
        {
            **_all(
                "explain show lag top console", Says((r"\bhandler-fails\b", ERROR, "on record [0-9]{20}"), 30)
            ),
            "exporter": Says((r"\bhandler-fails\b",), 30),
            "alerts": Says(("KinesisHandlerStuck", f"on {TARGET}"), 40),
            "doctor": Says((r"\bhandler-fails\b", ERROR, "record [0-9]{20}"), 40),
            "log": Says((ERROR,), 20),
        },
        heal=Fleet.mend,
        never=("a faster handler, more workers",),
    ),
    Incident(
        "freeze",
        "a worker process is frozen (SIGSTOP)",
        _freeze,
        {
            **_all("top console", Says(('"reason": "expired"',), 30)),
            "exporter": Says(("moves-expired",), 30),
            "ready": Says(("503", "has not reported for"), 30),
        },
        heal=_thaw,
        never=(r"moves-stolen|.reason.: .(stolen|released)",),
    ),
    Incident(
        "kill",
        "a worker process is killed (SIGKILL)",
        _kill,
        {
            "log": Says(("was killed by SIGKILL; starting it again",), 10),
            # The process resumes before its leases expire, unless the machine is very busy.
            **_all("show lag top console", Calm(frozenset({"silent-owner", "unbalanced"}))),
        },
        lasts=20,
    ),
    Incident(
        "hot",
        "a shard gets almost all that it accepts",
        _hot,
        {**_all("show lag top console exporter", Says(("hot-shard",), 120))},
    ),
    Incident(
        "throttle",
        "DynamoDB throttles 60 % of the calls to the lease table",
        _throttle,
        {
            "doctor": Says(("table-throttled", "on-demand"), 60),
            **_all("show lag top console exporter", Says(("table-throttled",), 60)),
        },
        lasts=45,
        heal=_clear,
        never=(r"moves-(expired|stolen)",),
    ),
    Incident(
        "reshard",
        "a shard is split, two are merged",
        _reshard,
        {**_all("show lag top console exporter", Calm(frozenset({"moves-new shard", "unbalanced"})))},
        lasts=30,
    ),
    Incident(
        "expired",
        "the credentials have expired",
        _expire,
        {
            **_all("explain show lag", Says(("exit-3", "(?i)expired"), 15)),
            "doctor": Says(("unreachable", "(?i)expired"), 30),
            **_all("top console", Says(("error", "(?i)expired"), 20)),
            "exporter": Says((r"\bup\b",), 80),
            "alerts": Says(("KinesisLeaseTableNotRead",), 90),
            "ready": Says(("503", "the lease table could not be read"), 40),
            "log": Says(("ExpiredTokenException",), 20),
        },
        heal=_clear,
    ),
    Incident(
        "silence",
        "AWS does not answer (SIGSTOP)",
        _hang_aws,
        {
            **_all("top console", Says(("error", "Read timeout"), 40)),
            **_all("explain show lag", Says(("exit-3", "Read timeout"), 60)),
            "exporter": Says((r"\bup\b",), 90),
            "ready": Says(("503",), 60),
            "doctor": Says(("unreachable", "Read timeout"), 120),
        },
        heal=_thaw_aws,
    ),
    Incident(
        "clock",
        "the clock is 300 s ahead",
        lambda fleet: fleet.set_date(-300),
        {
            "doctor": Says(("clock-skew", "300 s"), 60),
            # An open view compares the clocks in its newest twenty answers, with a scan every two seconds.
            **_all("show lag top console exporter", Says(("clock-skew",), 90)),
        },
        heal=lambda fleet: fleet.set_date(0),
    ),
    Incident(
        "iterator",
        "half of all reads find an expired iterator",
        lambda fleet: fleet.fault(kind="expired_iterator", probability=0.5),
        {
            "log": Says(("(?i)iterator",), 30),
            **_all("show lag top console exporter", Calm(frozenset({"moves-new shard"}))),
        },
        lasts=20,
        heal=_clear,
    ),
    Incident(
        "stopped",
        "all workers are stopped",
        _stop,
        {
            **_all("explain show lag top console", Says((r"\bstopped\b", "start a worker"), 30)),
            "exporter": Says(("stopped", "abandoned"), 30),
            "alerts": Says(("KinesisApplicationAbandoned",), 40),
            "doctor": Says((r"\bstopped\b", "behind"), 60),
        },
        leaves_workers=False,
    ),
    Incident(
        "row",
        "the lease table has a row of a shard that does not exist",
        _foreign_row,
        {
            **_all("show lag", Says(("misfit-row", "777"), 60)),
            # They list the shards once a minute.
            **_all("top console exporter", Says(("misfit-row", "777|kinesis_fleet"), 100)),
            "doctor": Says(("misfit-row", "777"), 60),
        },
        never=("StreamRecreatedError", "was deleted and created"),
    ),
    Incident(
        "spool",
        "the disk is full while failed records are spooled",
        _full_disk,
        {
            "log": Says(
                (r"[0-9]+ of these in the spool, [0-9]+ NOT in the spool", "(?i)too large|no space"), 90
            ),
            **_all("show lag top console", Calm()),
        },
        heal=_clear,
    ),
)
