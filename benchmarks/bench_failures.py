"""What a service that fails now and then costs a handler that calls it once for each record: calls, compared with the best way. Virtual time.

    python benchmarks/bench_failures.py [--records 2500] [--runs 30]

The best way repeats each call that failed, and no other. Each row is a way of delivering (`tests/consumer/shard/flaky.py`), with the defaults of
`ConsumerConfig`, and each column a share of calls that fail. A cell has the calls of the service as a multiple of the best way, on average and in the worst
run, and the calls of the handler. `whole batches` is what `batch_records` records at once would take without getting smaller, computed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kinesis_sdk.consumer import ConsumerConfig
from tests.consumer.shard.flaky import WAYS, best, play

_CHANCES = {"every 1,000th": 0.001, "every 300th": 0.0034, "every 50th": 0.02, "every 10th": 0.1}
_WIDTH = 26


def _whole(chance: float, total: int) -> float:
    """Return the expected calls of the service if each batch is repeated as a whole until none of its calls fails."""
    size = min(total, ConsumerConfig().batch_records or total)
    return total / size * ((1 - chance) ** -size - 1) / chance


def _row(name: str, cells: list[str]) -> None:
    print(f"{name:24}", *[f"{cell:{_WIDTH}}" for cell in cells], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_500, help="records of a run")
    parser.add_argument("--runs", type=int, default=30, help="runs of a cell, by seed")
    options = parser.parse_args()
    if options.records < 1 or options.runs < 1:
        parser.error("--records and --runs are 1 or more")
    logging.disable(logging.CRITICAL)
    _row("", [f"fails {name}" for name in _CHANCES])
    for way in WAYS:
        cells = []
        for chance in _CHANCES.values():
            print(f"\r{way}, {chance:g} …", end="\r", file=sys.stderr)
            runs = [play(way, seed, chance, options.records) for seed in range(options.runs)]
            ratios = [run.calls / best(chance, options.records) for run in runs]
            handled = sum(run.handled for run in runs) / len(runs)
            cells.append(f"{sum(ratios) / len(ratios):.2f} (≤ {max(ratios):.2f}), {handled:,.0f} calls")
        _row(way, cells)
    _row(
        "whole batches",
        [
            f"{_whole(chance, options.records) / best(chance, options.records):,.3g}"
            for chance in _CHANCES.values()
        ],
    )


if __name__ == "__main__":
    main()
