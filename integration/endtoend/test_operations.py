"""Random operations on a running fleet, judged record by record. `make operations COUNT=200` makes more of them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from integration.endtoend.operations import FAILOVER_TIME, make_operator, make_options, play
from integration.endtoend.report import render
from integration.endtoend.run import Run
from integration.steering.plan import make_operations
from kinesis_sdk.testing import start_server_process

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

COUNT = int(os.environ.get("OPERATIONS", "40"))
SEED = int(os.environ.get("OPERATIONS_SEED", "1"))


def test_random_operations(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        start_server_process("--seed", str(SEED)) as server,
        Run(make_options(server.endpoint_url, SEED), tmp_path) as run,
    ):
        run.start()
        operator = make_operator(run, tmp_path)
        verdict = play(run, operator, make_operations(SEED, COUNT, failover_time=FAILOVER_TIME))
    print(render(verdict.summary(SEED, time.monotonic() - began)))
    print("\n".join(operator.refusals))
    assert verdict.violations == []
    # How many operations find something to do depends on the machine; without any, the run would prove nothing.
    assert sum(operator.made.values()) > COUNT / 4, operator.refusals
    assert verdict.account.repeated > 0
    assert {event.kind for event in run.events} >= {"reshard", "kill", "freeze"}
