"""The whole thing: processes that put and consume flights, and all that can happen to them, on two backends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.endtoend.checker import Findings
from integration.endtoend.fault_plan import BLACK_HOLE, CUT, WIRE_FAULTS, Wire
from integration.endtoend.recorded_events import WRONG_SHARD
from integration.endtoend.report import render, summary
from integration.endtoend.run import Run, RunOptions
from integration.proxy import Proxy
from kinesis_sdk.testing import ServerProcess, start_server_process
from tests import HANG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

SLOW = {
    # LocalStack takes 1,300 records a second at best, and fewer the more a shard holds: few and large ones.
    "rate": 60.0,
    "producer": {"record_max_buffered_time": 0.5},
    "failover_time": 10.0,
    "consumer": {"idle_time_between_reads": 1.0},
}


@pytest.fixture(scope="module")
def fake() -> Iterator[ServerProcess]:
    with start_server_process() as server:
        yield server


def judge(run: Run) -> Findings:
    findings = run.finish()
    print(render(summary(run, findings)))
    assert findings.violations == []
    assert findings.processed == findings.acknowledged + findings.unacknowledged
    return findings


def everything(endpoint: str, folder: Path, pace: float, **options: object) -> Findings:
    """Reshards of every kind, workers that die, stop and freeze, a producer that dies."""
    failover = float(options.get("failover_time", 5.0))  # type: ignore[arg-type]
    with Run(RunOptions(endpoint_url=endpoint, control_url=endpoint, **options), folder) as run:  # type: ignore[arg-type]
        run.start()
        run.go_on(pace)
        run.stream.split()
        run.go_on(pace)
        run.stop_worker(replace_after=0.0)
        run.go_on(2 * pace)
        run.stream.merge()
        run.go_on(pace)
        run.kill_worker()
        run.go_on(2 * pace)
        run.stream.scale(12)
        run.go_on(pace)
        run.freeze_worker(failover + 3.0)
        run.go_on(pace)
        run.kill_producer()
        run.go_on(failover + 3.0)
        findings = judge(run)
        shards = run.recorded.shards.values()
        assert sum(shard.is_open for shard in shards) == 12, "scaled"
        assert any(len(shard.parents) == 2 for shard in shards), "merged"
    assert findings.take_overs, "the killed worker's shards went on"
    assert max(findings.take_overs) < HANG
    return findings


def test_everything_on_the_fake(fake: ServerProcess, tmp_path: Path) -> None:
    # As a KCL: an acknowledged record must not be in an aggregate that it would discard.
    findings = everything(fake.endpoint_url, tmp_path, 1.5, consumer={"misplaced_aggregates": "discard"})
    assert findings.acknowledged


def test_everything_on_localstack(localstack: str, tmp_path: Path) -> None:
    findings = everything(localstack, tmp_path, 3.0, **SLOW)
    assert findings.acknowledged


def run_with_fault(name: str, endpoint: str, folder: Path, seconds: float, **options: object) -> None:
    with Proxy(endpoint, seed=11) as proxy:
        # Often, because truncated responses affect leader tasks most.
        consumer = {"shard_sync_interval": 1.0, **options.pop("consumer", {})}  # type: ignore[dict-item]
        chosen = {"shards": 4, "workers": 2, "consumer": consumer, **options}
        chosen["fan_out"] = 1 if name == CUT else 0
        with Run(
            RunOptions(endpoint_url=proxy.endpoint_url, control_url=endpoint, **chosen),  # type: ignore[arg-type]
            folder,
        ) as run:
            run.start()
            wire = Wire(run, proxy)
            run.stream.split()
            run.go_on(3)  # until the parent's lease is deleted, which no broken answer may bring back
            wire.begin(name, seconds)
            run.go_on(seconds / 2)
            run.stream.merge()
            run.go_on(seconds / 2 + 2)

            def was_felt() -> bool:
                if name in {CUT, "delay"}:
                    return bool(wire.cuts if name == CUT else proxy.affected)
                return bool(set(run.recorded.retries) - {WRONG_SHARD})  # a producer had to try again

            # What a fault of some seconds hits depends on the machine, so there are more of them until one hit something.
            end = time.monotonic() + HANG
            while not was_felt():
                assert time.monotonic() < end, "no request was affected"
                wire.begin(name, seconds)
                run.go_on(seconds + 2)
            judge(run)


@pytest.mark.parametrize("name", WIRE_FAULTS)
def test_faults_on_the_wire(name: str, fake: ServerProcess, tmp_path: Path) -> None:
    # In a black hole for longer than the failover time, workers must stop believing in their leases.
    seconds = 7.0 if name == BLACK_HOLE else 4.0
    run_with_fault(name, fake.endpoint_url, tmp_path, seconds, rate=150.0, producer={"request_timeout": 2.0})


@pytest.mark.parametrize("name", ["delay", "reset mid-body"])
def test_faults_on_the_wire_to_localstack(name: str, localstack: str, tmp_path: Path) -> None:
    run_with_fault(name, localstack, tmp_path, 6.0, **SLOW)


def test_credentials_that_expire_on_the_way_are_refreshed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AWS_ACCESS_KEY_ID", "AKIDOPERATOR"
    )  # of the run itself; the processes have none for ever
    with start_server_process("--access-key", "AKIDOPERATOR") as server:
        script = Path(__file__).with_name("credential_process.py")
        config = tmp_path / "aws-config"
        config.write_text(
            "[default]\nregion = us-east-1\n"
            f"credential_process = '{sys.executable}' '{script}' {server.endpoint_url} 4\n"
        )
        environment = {
            "AWS_ACCESS_KEY_ID": None,
            "AWS_SECRET_ACCESS_KEY": None,
            "AWS_CONFIG_FILE": str(config),
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
        options = RunOptions(
            endpoint_url=server.endpoint_url,
            control_url=server.endpoint_url,
            shards=4,
            workers=2,
            rate=100.0,
            # Longer than a busy machine takes to run credential_process: no lease may expire meanwhile.
            failover_time=60.0,
            environment=environment,
        )
        with Run(options, tmp_path) as run:
            run.start()
            run.until(
                lambda: all(
                    server.admin("stats")["errors"].get(f"{operation}:ExpiredTokenException")
                    for operation in ("PutRecords", "GetRecords", "Scan")
                ),
                HANG,
                "each operation to meet an expired token",
            )
            run.go_on(2)
            judge(run)
            assert len(run.recorded.workers) == 2
            assert len(run.recorded.producers) == 2
