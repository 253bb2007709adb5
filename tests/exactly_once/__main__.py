"""Plays schedules and prints what happened in them: ``python -m tests.exactly_once --schedules 1000 --first 0``."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.exactly_once.schedule import play


def write(line: str) -> None:
    """Print a line at once, also into a file."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Play them in order; the exit code is 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000, help="number of schedules (1000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one (0)")
    parser.add_argument("--every", type=int, default=500, help="print the sums after so many (500)")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    failed: list[int] = []
    began = time.process_time()
    last = options.first + options.schedules - 1
    with tempfile.TemporaryDirectory(prefix="exactly-once-") as folder:
        for number, seed in enumerate(range(options.first, last + 1), start=1):
            try:
                played = play(seed, Path(folder))
            except AssertionError as error:
                failed.append(seed)
                write(f"seed {seed}: {error}")
                continue
            counts += played.counts
            for verdict in played.verdicts.values():
                counts.update(verdict._asdict())
            if number % options.every == 0 or seed == last:
                seconds = (time.process_time() - began) / number
                write(
                    f"\n{number:,} schedules, {seconds:.3f} s of the processor each, failed: {failed or 'none'}"
                )
                for name, count in sorted(counts.items()):
                    write(f"  {count:>12,}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
