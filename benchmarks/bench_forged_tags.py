"""What forged tags cost a reader for each byte that it reads, in CPU time and in steps.

    python benchmarks/bench_forged_tags.py [--tags 1000000] [--first-seed 0]
    python benchmarks/bench_forged_tags.py --known [--runs 80]

The first form draws streams of forged aggregates (`tests/common/once/forgeries.py`) until as many tags as wanted were read, and plays each as a worker reads it: with look-ups,
and some batches twice. Bytes are those of the records, in batches and look-ups. CPU time includes deaggregation. Steps, which are equal on each machine, are counted
for the hundredth of the streams that took most CPU time for their bytes, and for as many that are drawn at random.

The second form counts the steps for each run of the known attacks (`tests/common/once/forged.py`), with 1, 10 and 100 times as many runs: read one by one, and all in one batch
that is looked up beside as many before it. What grows with them is more than linear.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from kinesis_sdk.common.once.table import MAX_RUNS
from tests.common.once.forged import FORGED, cost
from tests.common.once.forgeries import forge
from tests.common.once.steps import steps_of

_SIZES = (1, 3, 10, 30, 100, 300)
_PROGRESS = 5.0
"""Seconds between two lines of progress."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tags", type=int, default=1_000_000, help="forged tags to read")
    parser.add_argument("--first-seed", type=int, default=0, help="another one draws other streams")
    parser.add_argument("--known", action="store_true", help="count the steps of the known attacks instead")
    parser.add_argument("--runs", type=int, default=80, help="runs of the smallest of them, at most 80")
    options = parser.parse_args()
    if not 1 <= options.runs <= MAX_RUNS // 100 - 1:
        parser.error(
            f"argument --runs: expected 1 to {MAX_RUNS // 100 - 1}, because a longer table is a stranger's"
        )
    if options.known:
        show_known(options.runs)
    else:
        play_drawn(options.tags, options.first_seed)


def show_known(runs: int) -> None:
    """Print the steps of the known attacks."""
    sizes = [times * runs for times in (1, 10, 100)]
    print("| steps for each run | " + " | ".join(f"{size:,} runs" for size in sizes * 2) + " |")
    print("|---|" + "---:|" * 2 * len(sizes))
    for name, forged in FORGED.items():
        alone = [cost(forged(size)) for size in sizes]
        beside = [cost(all_, past=all_, each=len(all_)) for all_ in map(forged, sizes)]
        print(f"| {name} | " + " | ".join(f"{steps:.0f}" for steps in [*alone, *beside]) + " |", flush=True)


def play_drawn(wanted: int, first_seed: int) -> None:
    """Draw streams until as many tags were read, and print what they cost."""
    tags = streams = read = runs = 0
    spent = 0.0
    costs: list[tuple[float, int, int]] = []
    began = shown = time.monotonic()
    while tags < wanted:
        seed = first_seed + streams
        size = Random(seed).choice(_SIZES)
        forgery = forge(seed, size)
        start = time.process_time()
        forgery.play()
        seconds = time.process_time() - start
        streams += 1
        tags += len(forgery.records) + len(forgery.past) + len(forgery.ancestors)
        runs += forgery.runs
        read += forgery.read_bytes
        spent += seconds
        costs.append((seconds / max(1, forgery.read_bytes), seed, size))
        if (now := time.monotonic()) >= shown + _PROGRESS:
            shown = now
            left = (now - began) * (wanted / tags - 1)
            print(f"{tags:,} tags, about {left:.0f} s left", file=sys.stderr)
    print(
        f"{tags:,} forged tags with {runs:,} runs in {streams:,} streams: {read / 1e6:,.1f} MB read, {spent / read * 1e6:.3f} µs a byte in the mean"
    )
    worst = heapq.nlargest(max(1, streams // 100), costs)
    for per_byte, seed, size in worst[:3]:
        print(f"most CPU time: {per_byte * 1e6:.2f} µs a byte (seed {seed}, size {size})")
    steps = []
    others = Random(first_seed).sample(costs, len(worst))
    for _, seed, size in {*worst, *others}:
        forgery = forge(seed, size)
        steps.append((steps_of(forgery.play) / max(1, forgery.read_bytes), seed, size))
    for count, seed, size in heapq.nlargest(3, steps):
        print(f"most steps: {count:.2f} a byte (seed {seed}, size {size})")


if __name__ == "__main__":
    main()
