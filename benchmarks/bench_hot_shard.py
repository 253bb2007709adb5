"""A shard that gets more than it takes: our limiter beside the KPL's rule, in one simulation in virtual time.

    python benchmarks/bench_hot_shard.py [--seeds N] [--traffic NAME]

Independent producers together offer twice what one shard takes, for 80 s; the last 60 s count. The
shard has the service's limits (1,000 records/s and 1 MiB/s), a request takes 16 to 80 ms. "Used" is what the shard took as a
share of its limit, "thrown back" the share of entries that it throttled, "fairness" Jain's index of the producers' shares over
that minute. Of several seeds the worst value of each is shown. Exits with 1 if kinesis_sdk misses a target.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.producer.hot_shard import TRAFFICS, run_hot_shard

LEAST_USED = 0.96
MOST_THROWN_BACK = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traffic", help="only rows whose name begins so")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each row (default: 1)")
    options = parser.parse_args()
    seeds = range(options.seeds)
    print(f"targets of kinesis_sdk: used >= {LEAST_USED:.0%}, thrown back <= {MOST_THROWN_BACK:.0%}\n")
    print(
        f"{'limited by':<20} {'producers':>9}  {'rule':<11} {'used':>7} {'thrown back':>11} {'fairness':>8}"
    )
    missed = 0
    for traffic in TRAFFICS:
        if not traffic.name.startswith(options.traffic or ""):
            continue
        for producers in (1, 2, 4):
            for name, like_kpl in (("kinesis_sdk", False), ("KPL", True)):
                runs = [
                    run_hot_shard(producers, traffic, like_kpl=like_kpl, seed=10 * seed) for seed in seeds
                ]
                used = min(run.utilisation for run in runs)
                thrown_back = max(run.thrown_back for run in runs)
                fairness = min(run.fairness for run in runs)
                failed = not like_kpl and (used < LEAST_USED or thrown_back > MOST_THROWN_BACK)
                missed += failed
                print(
                    f"{traffic.name:<20} {producers:>9}  {name:<11} {used:>7.1%} {thrown_back:>11.2%} {fairness:>8.2f}"
                    + ("  missed" if failed else ""),
                    flush=True,
                )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
