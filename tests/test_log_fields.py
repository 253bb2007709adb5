"""Fields of structured logging: every line of consumer and producer has them, and they say what the line is about."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import pytest

import kinesis_sdk
from kinesis_sdk.common.log_fields import FIELDS, FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import CountingLogThrottle, LogThrottle
from kinesis_sdk.consumer import ConsumerConfig, DynamoDBLeaseStore
from kinesis_sdk.testing import Fault
from tests.consumer.fleet.engines import STREAM, Fleet
from tests.trees import parse

PACKAGE = Path(kinesis_sdk.__file__).parent
MODULES = sorted(
    path for part in ("common", "consumer", "producer") for path in (PACKAGE / part).rglob("*.py")
)


LOGGING = ("getLogger", "debug", "info", "warning", "error", "exception", "critical", "log")


def bare_loggers(source: str) -> list[int]:
    """Return the lines that use a logger of `logging` which no `FieldLogger` wraps."""
    if not any(f"logging.{name}(" in source for name in LOGGING):
        return []  # most modules
    tree = parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    wrapped = {
        id(argument)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "FieldLogger"
        for argument in call.args
    }
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "logging"
        and call.func.attr in LOGGING
        and id(call) not in wrapped
        # The loggers of other packages are only asked for their level.
        and not any(
            isinstance(argument, ast.Constant) and str(argument.value).startswith("botocore")
            for argument in call.args
        )
    ]


def test_every_module_logs_with_fields():
    found = {path: lines for path in MODULES if (lines := bare_loggers(path.read_text(encoding="utf-8")))}
    assert found == {}


def fields_of(record: logging.LogRecord) -> dict[str, str | None]:
    return {name: getattr(record, name) for name in FIELDS}


def test_fields_are_inherited_and_overridden(caplog):
    caplog.set_level(logging.DEBUG)
    module = FieldLogger(logging.getLogger("kinesis_sdk.test"))
    worker = FieldLogger(module, worker="w", stream="orders")
    shard = FieldLogger(worker, shard="s")
    module.info("plain")
    shard.info("of a shard: %d", 5)
    worker.info("of a lease", extra={**log_fields(shard="t"), "more": 1})
    LogThrottle(shard).log(0.0, "kind", "throttled", extra=log_fields(shard="u"))
    CountingLogThrottle(worker).log("counted %d", extra=log_fields(stream="clicks"))
    assert [fields_of(record) for record in caplog.records] == [
        {"stream": None, "shard": None, "worker": None},
        {"stream": "orders", "shard": "s", "worker": "w"},
        {"stream": "orders", "shard": "t", "worker": "w"},
        {"stream": "orders", "shard": "u", "worker": "w"},
        {"stream": "clicks", "shard": None, "worker": "w"},
    ]
    assert [record.getMessage() for record in caplog.records][:2] == ["plain", "of a shard: 5"]
    assert {record.funcName for record in caplog.records[:3]} == {"test_fields_are_inherited_and_overridden"}


def test_a_line_that_is_not_logged_costs_nothing():
    class Counting(FieldLogger):
        calls = 0

        def process(self, msg, kwargs):
            Counting.calls += 1
            return super().process(msg, kwargs)

    logger = logging.getLogger("kinesis_sdk.test.quiet")
    logger.setLevel(logging.ERROR)
    log = Counting(logger)
    for _ in range(10):
        log.info("not wanted")
    assert Counting.calls == 0


NAMED = re.compile(r"^(?:shard|lease) (?:\d+:\w+:\d+:)?(shardId-\d+)")


def check(records: list[logging.LogRecord], workers: set[str]) -> set[str]:
    """Check the lines of a fleet; return the texts of their kinds."""
    kinds = set()
    for record in records:
        if not record.name.startswith("kinesis_sdk.") or record.name.startswith("kinesis_sdk.testing"):
            continue
        line = f"{record.name}: {record.getMessage()}"
        kinds.add(record.msg)
        fields = fields_of(record)
        assert fields["worker"] in workers, line
        named = NAMED.match(record.getMessage())
        if named:
            assert fields["shard"] == named[1], line
            if ".standby" not in record.name and ".drain" not in record.name:
                assert fields["stream"] == STREAM, line
        told = re.match(r"worker (\S+?):? ", record.getMessage())
        if told:
            assert fields["worker"] == told[1], line
    return kinds


@pytest.mark.parametrize("until", [None, "now"])
def test_the_lines_of_a_fleet_name_stream_shard_and_worker(caplog, until):
    """Start, split, handoffs, failing and hanging handlers, faults, a crash, a foreign change, a drain, a stop."""
    caplog.set_level(logging.DEBUG, "kinesis_sdk")
    config = ConsumerConfig(initial_position="TRIM_HORIZON").with_fields(
        handler_timeout=5.0, stall_timeout=3.0
    )
    fleet = Fleet(shards=3, config=config)
    fleet.store = DynamoDBLeaseStore(
        fleet.aws.client("dynamodb"),
        "app",
        sleep=fleet.clock.advance,
        monotonic=fleet.clock.monotonic,
        worker_id="a",
    )
    if until:
        fleet.more["until"] = until
    failing = [3]

    def handle(batch):
        if failing[0]:
            failing[0] -= 1
            raise RuntimeError("no")
        fleet.note("a", batch)

    fleet.put(60)
    fleet.add("a", handle)
    fleet.run(2)
    fleet.add("b", fleet.recorder("b", last_words=True))
    fleet.split()
    fleet.put(30)
    for operation in ("GetRecords", "UpdateItem", "Scan"):
        fleet.aws.faults.add(
            Fault(kind="error", operation=operation, code="InternalFailure", probability=0.3)
        )
    fleet.run(12)
    fleet.aws.faults.clear()
    if until is None:
        fleet.add("c")
        fleet.run(12)
        (held, *_) = list(fleet.engines["c"].coordinator.held)
        row = fleet.store.get(held.key)
        fleet.store.take(row, "c")
        fleet.store.take(fleet.store.get(held.key), "c")
        fleet.run(3)
        fleet.store.set_drain(held.key, "c", True)
        fleet.run(12)
        fleet.crash("b")
        fleet.run(12)
        fleet.stop("a")
    fleet.run(30)
    kinds = check(caplog.records, {"a", "b", "c"})
    assert len(kinds) >= (18 if until is None else 12), kinds
