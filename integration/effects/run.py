"""``make effects EFFECTS=1000000 SEED=7``: workers write effects to a database while they are killed and frozen at random.

Producers put numbered records, and some of their calls get no answer. Workers are ended by SIGKILL in the middle of what they do, or
stopped by SIGSTOP until others have taken their shards over; shards split and merge; connections are cut, PostgreSQL's too; DynamoDB
carries calls out whose answers are lost. At the end the stream is read by other code than the workers', and each effect is compared
with what the stream asks for. The same with workers without a sink is the baseline: it shows that the faults repeat effects.

What counts: a record of an idempotent producer takes effect once, however often it is stored; a record of a plain producer takes
effect once for each stored copy. The baseline's producer is plain.

columns:
  copies   records that producers stored again, because an answer was lost
  lost     acknowledged records and stored copies that took no effect
  twice    effects too many
  per s    records per second, from the first put to the last effect and the wait that follows

examples:
  python -m integration.effects.run --stores sqlite --effects 5000
  python -m integration.effects.run --stores sqlite,postgresql --effects 100000 --seed 7
  python -m integration.effects.run --stores dynamodb-local --effects 1000000
  python -m integration.effects.run --relay --stores sqlite --effects 10000
  python -m integration.effects.run --endpoint localstack --stores sqlite,dynamodb --producers mixed

Progress is printed to standard error, the table to standard output. Ctrl-C ends the run and all of its processes.
Exit code 0 if every record of each run with a sink took effect exactly once, and each baseline repeated some; 1 if not; 2 if
something is missing on this machine; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import FrameType

from integration.commands import set_keys
from integration.effects.account import HEADER
from integration.effects.play import PRODUCERS, Plan, play
from integration.effects.services import ENDPOINTS, STORES
from integration.localstack.install import CannotInstallError
from integration.postgres import NoPostgresError

_BASELINE = 20_000
_SHORTEST = 40
_FASTEST = 5000.0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m integration.effects.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--effects",
        type=partial(_count, least=1),
        default=20_000,
        help="records of each run with a sink (default: %(default)s)",
    )
    made.add_argument("--seed", type=int, default=7, help="seed of the faults (default: %(default)s)")
    made.add_argument(
        "--endpoint",
        type=_endpoint,
        default="fake",
        help=f"holds the stream and the leases: {' or '.join(ENDPOINTS)}, which are started, or the URL of a LocalStack that runs "
        "(default: %(default)s)",
    )
    made.add_argument(
        "--stores",
        type=_stores,
        default="sqlite,postgresql,dynamodb",
        help=f"of {', '.join(STORES)}; dynamodb is that of the endpoint (default: %(default)s)",
    )
    made.add_argument(
        "--rate",
        type=_positive,
        default=_FASTEST,
        help=f"records per second at most; fewer if they would take less than {_SHORTEST} s (default: %(default)g)",
    )
    made.add_argument(
        "--fault-interval",
        type=_positive,
        help="mean seconds between kills, freezes, reshards and cuts (default: 2.5, and 5 on LocalStack, which is slower)",
    )
    made.add_argument(
        "--failover",
        type=_positive,
        help="failover time of the workers, seconds; workers of a busy machine lose their leases if it is short "
        "(default: 3, and 6 on LocalStack)",
    )
    made.add_argument(
        "--producers",
        choices=PRODUCERS,
        default="idempotent",
        help="with mixed, an idempotent and a plain one share the stream (default: %(default)s)",
    )
    made.add_argument(
        "--relay",
        action="store_true",
        help="put into another stream, and let killed and frozen workers relay it into the one that is judged, whose workers have a "
        "sink; the baseline relays without ids. Only sqlite and postgresql",
    )
    made.add_argument(
        "--baseline",
        type=partial(_count, least=0),
        help=f"records of the run without a sink, 0 for no such run (default: as many as with one, up to {_BASELINE:,})",
    )
    return made


def _count(text: str, least: int) -> int:
    digits = text.replace(",", "").replace("_", "")
    if not digits.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError(f"a number, not {text!r}")
    if int(digits) < least:
        raise argparse.ArgumentTypeError(f"it must be at least {least}, not {digits}")
    return int(digits)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number, not {text!r}") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"it must be more than 0, not {text}")
    return number


def _endpoint(text: str) -> str:
    if text not in ENDPOINTS and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{' or '.join(ENDPOINTS)} or a URL, not {text!r}")
    return text


def _stores(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names).difference(STORES))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(STORES)}")
    return names


def plans(options: argparse.Namespace) -> list[Plan]:
    """Return the runs of the command line: for each store the baseline, then the run with a sink."""
    baseline = min(_BASELINE, options.effects) if options.baseline is None else options.baseline
    # On a busy machine LocalStack serves few requests a second. If more are waiting, all of them time out.
    usual = (2.5, 3.0, 0.2) if options.endpoint == "fake" else (5.0, 6.0, 1.0)
    interval, failover = options.fault_interval or usual[0], options.failover or usual[1]
    found = []
    for store in options.stores:
        for puts, transactions in ((baseline, False), (options.effects, True)):
            if puts:
                # A lower rate than requested, if the run would otherwise end before its faults.
                rate = min(puts / _SHORTEST, options.rate)
                producers = options.producers if transactions or options.relay else "plain"
                found.append(
                    Plan(
                        options.endpoint,
                        store,
                        puts,
                        rate,
                        options.seed,
                        transactions,
                        producers,
                        interval,
                        failover,
                        usual[2],
                        relay=options.relay,
                    )
                )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for and print a table."""
    made = parser()
    options = made.parse_args(arguments)
    if options.relay and any(store.startswith("dynamodb") for store in options.stores):
        made.error("--relay: it counts in SQL, so add --stores sqlite or postgresql")
    set_keys()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _play_all(plans(options), options)
    except (CannotInstallError, NoPostgresError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the run that was under way is not judged", file=sys.stderr)
        return 130


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _play_all(todo: list[Plan], options: argparse.Namespace) -> int:
    print(f"seed {options.seed}, stream and leases: {options.endpoint}\n{HEADER}", flush=True)
    good = True
    with tempfile.TemporaryDirectory(prefix="kinesis-sdk-effects-") as name:
        for number, plan in enumerate(todo):
            folder = Path(name, str(number))
            folder.mkdir()
            label = f"{plan.store} {'with' if plan.transactions else 'no'} {'ids' if plan.relay else 'sink'}"
            outcome = play(plan, folder, partial(_tell, label))
            print(outcome.line(), flush=True)
            good = good and outcome.is_good
    print("PASSED" if good else "FAILED")
    return 0 if good else 1


def _tell(label: str, line: str) -> None:
    print(f"{label}: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
