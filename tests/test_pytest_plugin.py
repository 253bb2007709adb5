"""The pytest plugin: its fixtures, and the examples of docs/testing.md, run by pytest itself."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

import pytest

from kinesis_sdk import (
    ConsumerConfig,
    HandlerError,
    InMemorySink,
    PendingRecord,
    Producer,
    RecordBatch,
    RecordHandler,
    pytest_plugin,
)
from kinesis_sdk.pytest_plugin import TestStream
from tests.readme import ROOT, programs

PAGE = ROOT / "docs" / "testing.md"


def test_pytest_finds_it() -> None:
    (found,) = [point for point in entry_points(group="pytest11") if point.name == "kinesis_sdk"]
    assert found.value == "kinesis_sdk.pytest_plugin"


def test_it_imports_nothing_until_it_is_used() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import kinesis_sdk.pytest_plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [
        "kinesis_sdk",
        "kinesis_sdk._lazy",
        "kinesis_sdk._version",
        "kinesis_sdk.pytest_plugin",
    ]


class Reports:
    """A plugin that keeps the outcomes of the tests of each file."""

    def __init__(self) -> None:
        self.outcomes: dict[str, set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.outcomes.setdefault(report.location[0], set()).add(report.outcome)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Run the examples of the page by one pytest, inside of this process, whose imports take longest; return what became of each file."""
    folder = tmp_path_factory.mktemp("examples")
    for number, example in enumerate(programs(PAGE)):
        (folder / f"test_example_{number}.py").write_text(example.text)
    # pytest finds ours by itself. The others would be imported for nothing, or disturb those of this run.
    others = {point.name for point in entry_points(group="pytest11")} - {"kinesis_sdk"}
    without = [
        f"-pno:{name}"
        for name in (
            "cacheprovider",
            "faulthandler",
            "terminal",
            "unraisableexception",
            "threadexception",
            *sorted(others),
        )
    ]
    reports = Reports()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        pytest.main(
            [
                "-s",
                "-c",
                "/dev/null",
                f"--rootdir={folder}",
                f"--basetemp={folder}/tmp",
                *without,
                str(folder),
            ],
            [reports],
        )
    for number in range(len(programs(PAGE))):
        sys.modules.pop(f"test_example_{number}", None)
    return reports.outcomes


@pytest.mark.parametrize("number", range(5))
def test_an_example_of_the_page(number: int, outcomes: dict[str, set[str]]) -> None:
    examples = programs(PAGE)
    assert len(examples) == 5
    text = examples[number].text
    assert sum(1 for line in text.splitlines() if line and "import" not in line) < 10, "under ten lines"
    assert outcomes[f"test_example_{number}.py"] == {"passed"}


def test_what_was_put(kinesis_stream: TestStream) -> None:
    kinesis_stream.put("a", b"1", b"2")
    kinesis_stream.put_aggregate([("b", b"3"), ("a", b"4")])
    kinesis_stream.assert_put(("b", b"3"), ("a", b"1"), ("a", b"2"), ("a", b"4"))
    for wrong in ([("a", b"1")], [("a", b"2"), ("a", b"1"), ("a", b"4"), ("b", b"3")]):
        with pytest.raises(AssertionError):
            kinesis_stream.assert_put(*wrong)
    assert [record.aggregated for record in kinesis_stream.records] == [False, False, True, True]


def test_a_producer_on_the_fake(kinesis_aws: Any, kinesis_stream: TestStream) -> None:
    with Producer(client=kinesis_stream.client) as producer:
        producer.put_many(kinesis_stream.name, [("k", b"%d" % number) for number in range(5)])
    kinesis_stream.assert_put(*(("k", b"%d" % number) for number in range(5)))


def test_a_worker_runs_to_the_end_and_another_continues_at_its_checkpoint(
    kinesis_stream: TestStream, kinesis_worker: Any
) -> None:
    seen: list[bytes] = []

    def handle(batch: RecordBatch) -> None:
        seen.extend(record.data for record in batch.records)

    kinesis_stream.put("k", b"1", b"2")
    first = kinesis_worker(handle)
    first.run()
    assert seen == [b"1", b"2"]
    kinesis_stream.put("k", b"3")
    kinesis_worker(handle, worker_id="worker-2", leases=first.leases).run()
    assert seen == [b"1", b"2", b"3"]
    with pytest.raises(RuntimeError, match="already running"):
        first.run()


def test_steps_take_virtual_time_only(
    kinesis_aws: Any, kinesis_stream: TestStream, kinesis_worker: Any
) -> None:
    seen: list[bytes] = []
    worker = kinesis_worker(lambda batch: seen.extend(record.data for record in batch.records))
    before = kinesis_aws.clock.monotonic()
    worker.run_for(120)
    assert kinesis_aws.clock.monotonic() >= before + 120
    kinesis_stream.put("k", b"1")
    while not seen:
        assert worker.step()
    worker.stop()
    assert not worker.step()
    (lease,) = worker.leases.list()
    assert lease.owner is None, "released"


def test_a_handler_of_a_sink_and_metrics(kinesis_stream: TestStream, kinesis_worker: Any) -> None:
    counted: list[str] = []

    class Metrics:
        def add(self, metric: Any, *_: Any, **__: Any) -> None:
            counted.append(metric.name)

        def retire(self, scope: Any) -> None: ...

    def handle(batch: RecordBatch) -> None:
        batch.transaction.extend(record.data for record in batch.records)

    sink = InMemorySink()
    kinesis_stream.put("k", b"1", b"2")
    first = kinesis_worker(handle, sink=sink, metrics=Metrics())
    first.run()
    kinesis_stream.put("k", b"3")
    kinesis_worker(handle, sink=sink, worker_id="worker-2").run()
    assert list(sink.effects) == [b"1", b"2", b"3"], "a lease table of its own, and the position of the sink"
    assert counted


def test_a_record_that_waits_has_a_public_type(kinesis_stream: TestStream) -> None:
    with Producer(client=kinesis_stream.client) as producer:
        pending: Sequence[PendingRecord] = producer.put_many(kinesis_stream.name, [("k", b"1")])
        assert isinstance(pending[0], PendingRecord)


def test_a_handler_that_fails(
    kinesis_stream: TestStream, kinesis_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(RecordHandler):
        def process_records(self, batch: RecordBatch) -> None:
            raise RuntimeError("broken")

    kinesis_stream.put("k", b"1")
    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error="stop")
    with pytest.raises(HandlerError, match="broken"):
        kinesis_worker(Failing, config).run()
    assert pytest_plugin._LONGEST_RUN == 3600.0
    monkeypatch.setattr(pytest_plugin, "_LONGEST_RUN", 120.0)
    with pytest.raises(TimeoutError, match="virtual hour"):
        kinesis_worker(Failing, worker_id="worker-2").run()


def test_the_virtual_clock_starts_now(kinesis_aws: Any) -> None:
    """A producer compares it with the clock of this machine: with another time, each spooled record would be too old to be put again as itself."""
    assert abs(kinesis_aws.clock.time() - time.time()) < 60
