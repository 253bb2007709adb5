"""Wasted calls on a hot shard: our limiter beside the KPL's rule, in one simulation in virtual time.

    python benchmarks/bench_hot_shard.py

Producers that know nothing of each other offer 2,000 small records per second to one shard, which takes 1,000.
Each has the default rate limit of 150 %. "Wasted" are entries that the service throws back.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.producer.hot_shard import run_hot_shard


def main() -> None:
    print(f"{'producers':>9}  {'rule':<12} {'stored/s':>9} {'wasted':>8} {'fairness':>9}")
    for producers in (1, 2, 4):
        for name, like_kpl in (("kinesis_sdk", False), ("KPL", True)):
            result = run_hot_shard(producers, offered=2_000, seconds=10, settle=8, like_kpl=like_kpl)
            print(
                f"{producers:>9}  {name:<12} {result.stored_per_second:>9,.0f} {result.wasted:>8.1%} "
                f"{result.fairness:>9.3f}"
            )


if __name__ == "__main__":
    main()
