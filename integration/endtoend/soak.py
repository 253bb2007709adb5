"""``make soak MINUTES=15``: producers, workers and random faults from a seed, for as long as you like.

Prints what it does, then a table, and draws a picture over time. Exit status 0 if nothing was lost and everything is
explained, 1 if not. Ctrl-C ends the faults; everything is then stopped in order, checked and reported as usual.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from integration.commands import set_keys
from integration.endtoend.checker import Findings
from integration.endtoend.fault_plan import Wire
from integration.endtoend.plan import Action, make_plan
from integration.endtoend.report import render, summary
from integration.endtoend.run import Run, RunOptions
from integration.proxy import Proxy
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.testing import start_server_process

_FAILOVER_TIME = 5.0
_FEWEST, _MOST = 4, 16
"""Minimum and maximum number of open shards."""
_WORKERS = 3


def carry_out(action: Action, run: Run, wire: Wire) -> None:
    """Carry out one action of the plan, if it is possible now."""
    kind = action.kind
    if kind == "wire":
        assert action.fault is not None
        wire.begin(action.fault, action.seconds)
    elif kind == "kill worker":
        run.kill_worker(replace_after=action.seconds)
    elif kind == "stop worker":
        run.stop_worker(replace_after=action.seconds)
    elif kind == "freeze worker":
        run.freeze_worker(action.seconds)
    elif kind == "kill producer":
        run.kill_producer(replace_after=action.seconds)
    elif not run.stream.is_resharding:
        _reshard(action, run)


def _reshard(action: Action, run: Run) -> None:
    if action.kind == "scale":
        count = len(run.stream.shards())
        lowest, highest = max(_FEWEST, (count + 1) // 2), min(_MOST, count * 2)
        target = lowest + int(action.choice * (highest - lowest))
        if target != count:
            run.stream.scale(target)
    else:
        run.stream.reshard(action.kind, _FEWEST, _MOST)


def soak(run: Run, proxy: Proxy, plan: list[Action], seconds: float, stop: StopFlag) -> Findings:
    """Run until the time is over or `stop` is set; then end in order and check."""
    wire = Wire(run, proxy)
    run.start()
    began = time.monotonic()

    def go_on_until(at: float) -> None:
        while not stop.is_set() and (left := began + at - time.monotonic()) > 0:
            run.go_on(min(left, 0.25))

    for action in plan:
        go_on_until(action.at)
        if stop.is_set():
            run.note("end", "interrupted: ending in order (Ctrl-C again to end at once)")
            break
        carry_out(action, run, wire)
    go_on_until(seconds)
    wire.heal()
    run.note("end", "the end: producers stop, workers process what is left")
    return run.finish()


def _interruptible() -> StopFlag:
    """Return an event that the first Ctrl-C sets; an exception at any point would leave half-read logs to the checks."""
    stop = StopFlag()

    def on_signal(number: int, frame: object) -> None:
        del number, frame
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, on_signal)
    return stop


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="repeat the plan of another soak (default: a random one)")
    parser.add_argument("--rate", type=float, default=200.0, help="records/s of each of two producers")
    parser.add_argument("--endpoint-url", help="in place of a fake AWS of its own, for example LocalStack's")
    parser.add_argument("--logs", type=Path, help="keep the logs of all processes in this folder")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status."""
    options = _parse(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    seconds = options.minutes * 60
    set_keys()
    print(f"soak of {options.minutes:g} minutes, seed {seed}", flush=True)
    stop = _interruptible()
    with contextlib.ExitStack() as stack:
        endpoint = options.endpoint_url
        if endpoint is None:
            endpoint = stack.enter_context(
                start_server_process("--seed", str(seed), own_session=True)
            ).endpoint_url
        if options.logs is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        else:
            folder = options.logs
            folder.mkdir(parents=True, exist_ok=True)
        proxy = stack.enter_context(Proxy(endpoint, seed=seed))
        run_options = RunOptions(
            endpoint_url=proxy.endpoint_url,
            control_url=endpoint,
            workers=_WORKERS,
            rate=options.rate,
            failover_time=_FAILOVER_TIME,
            fan_out=2,
            spared=True,
            seed=seed,
        )
        run = stack.enter_context(Run(run_options, folder, lambda line: print(line, flush=True)))
        plan = make_plan(seed, seconds, failover_time=_FAILOVER_TIME)
        findings = soak(run, proxy, plan, seconds, stop)
    rows = [("seed", f"{seed} (make soak MINUTES={options.minutes:g} SEED={seed})"), *summary(run, findings)]
    print(f"\n{render(rows)}\n")
    for violation in findings.violations:
        print(violation)
    print("FAILED" if findings.violations else "PASSED")
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
