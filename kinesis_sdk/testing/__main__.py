"""``python -m kinesis_sdk.testing``: a fake AWS endpoint for local work."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import threading
from typing import Any

from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.testing.aws import FakeAws
from kinesis_sdk.testing.clock import VirtualClock
from kinesis_sdk.testing.http.process import CA_PREFIX, READY_PREFIX
from kinesis_sdk.testing.http.server import FakeAwsServer

_EXAMPLES = """\
examples:
  %(prog)s --create-stream orders:4
      Kinesis, DynamoDB, CloudWatch and STS on http://127.0.0.1:4567, with a stream of four shards.
      Point any AWS client at it, in any shell:
        export AWS_ENDPOINT_URL=http://127.0.0.1:4567 AWS_DEFAULT_REGION=us-east-1
        export AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x
        aws kinesis list-shards --stream-name orders

  %(prog)s --no-throttle
      Shards without limits, for measuring clients. By default they reject more than 1,000 records or
      1 MiB per second, and more than 5 reads or 2 MiB per second, as the service does.

  %(prog)s --tls --ca-file ca.pem
      https, with a certificate made at the start. Clients have to trust the file, for example:
        export AWS_CA_BUNDLE=$PWD/ca.pem AWS_ENDPOINT_URL=https://127.0.0.1:4567
        keytool -importcert -noprompt -file ca.pem -keystore ca.p12 -storepass changeit
        java -Djavax.net.ssl.trustStore=ca.p12 -Djavax.net.ssl.trustStorePassword=changeit …
        curl --cacert ca.pem https://127.0.0.1:4567/_fake/stats

while it runs:
  curl http://127.0.0.1:4567/_fake/stats
  curl -d '{"kind": "throttle", "operation": "PutRecords", "probability": 0.1}' \\
       http://127.0.0.1:4567/_fake/faults
  curl -d '{"kind": "late_store", "seconds": 30, "count": 1}' http://127.0.0.1:4567/_fake/faults
  curl -X DELETE http://127.0.0.1:4567/_fake/faults

Everything is in memory and gone when it ends. Ctrl-C or SIGTERM ends it.
"""


def _stream(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition(":")
    if not name or not count.isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:SHARDS, for example orders:4")
    return name, int(count)


def build_parser(prog: str = "python -m kinesis_sdk.testing") -> argparse.ArgumentParser:
    """Return the parser of the command line; `prog` is the command's name in help and error messages."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="A fake AWS endpoint (Kinesis, DynamoDB and its streams, CloudWatch, STS) in memory, for tests and demos.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=4567, help="port; 0 chooses one (default: %(default)s)")
    parser.add_argument(
        "--tls",
        action="store_true",
        help="serve https, with a certificate made at the start; needs the extra 'fake'",
    )
    parser.add_argument(
        "--ca-file",
        metavar="PATH",
        help="where --tls writes the certificate that clients have to trust (default: a temporary file)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of injected faults, to repeat a run (default: %(default)s)"
    )
    parser.add_argument(
        "--throttle",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="shards enforce the service's read and write limits",
    )
    parser.add_argument(
        "--throttle-control-plane",
        action="store_true",
        help="limit administrative calls per second, too (LimitExceededException)",
    )
    parser.add_argument(
        "--latency", type=float, default=0.0, metavar="SECONDS", help="added to every call (default: 0)"
    )
    parser.add_argument("--region", default="us-east-1", help="region in ARNs (default: %(default)s)")
    parser.add_argument(
        "--create-stream",
        type=_stream,
        action="append",
        default=[],
        metavar="NAME:SHARDS",
        help="create this stream at the start; may be repeated",
    )
    parser.add_argument(
        "--table-partitions",
        type=int,
        default=1,
        metavar="NUMBER",
        help="open shards of the stream of a new table (default: %(default)s)",
    )
    parser.add_argument(
        "--reshard-delay",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long a stream is UPDATING after a split, merge or scaling (default: 0)",
    )
    parser.add_argument(
        "--access-key",
        action="append",
        metavar="ID",
        help="accept only this access key id; may be repeated (default: every one)",
    )
    parser.add_argument(
        "--date-offset",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how far the Date header of responses is ahead of the clock; negative if behind (default: 0)",
    )
    parser.add_argument("--no-date", action="store_true", help="send responses without a Date header")
    parser.add_argument(
        "--virtual-clock",
        action="store_true",
        help='stop the clock; POST {"advance": seconds} to /_fake/clock moves it',
    )
    parser.add_argument(
        "--json",
        dest="as_json",
        action="store_true",
        help="print one line of JSON with the address once it serves, and nothing else",
    )
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="end when standard input is closed, as when the parent dies",
    )
    return parser


def main(arguments: list[str] | None = None, *, prog: str = "python -m kinesis_sdk.testing") -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        arguments: Command line without the command; None uses the command line of the process.
        prog: Name of the command in help and error messages.

    Returns:
        Exit code with the meaning that all commands share: 0 after a clean end, 2 if it cannot serve with these options.
    """
    parser = build_parser(prog)
    options = parser.parse_args(arguments)
    if options.ca_file and not options.tls:
        parser.error("--ca-file needs --tls")
    aws = FakeAws(
        clock=VirtualClock() if options.virtual_clock else None,
        seed=options.seed,
        throttle=options.throttle,
        throttle_control_plane=options.throttle_control_plane,
        region=options.region,
        reshard_delay=options.reshard_delay,
        table_partitions=options.table_partitions,
        access_keys=options.access_key,
        date_offset=None if options.no_date else options.date_offset,
    )
    for name, shards in options.create_stream:
        aws.call("kinesis", "CreateStream", {"StreamName": name, "ShardCount": shards})
    stop = StopFlag()

    def on_signal(number: int, frame: Any) -> None:
        del number, frame
        stop.set()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    try:
        server = FakeAwsServer(
            aws,
            options.host,
            options.port,
            latency=options.latency,
            tls=options.tls,
            ca_file=options.ca_file,
        ).start()
    except ModuleNotFoundError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 2
    except OSError as error:
        # An error with a file name is about --ca-file, not the address.
        what = (
            f"serve on {options.host}:{options.port}" if error.filename is None else "write the certificate"
        )
        sys.stderr.write(f"Error: cannot {what}: {error}\n")
        return 2
    if options.exit_with_parent:

        def wait_for_parent() -> None:
            sys.stdin.read()
            stop.set()

        threading.Thread(target=wait_for_parent, name="parent", daemon=True).start()
    if options.as_json:
        facts = {
            "endpoint_url": server.endpoint_url,
            "region": options.region,
            "streams": [name for name, _ in options.create_stream],
            **({"ca_file": str(server.ca_file)} if options.tls else {}),
        }
        sys.stdout.write(f"{json.dumps(facts)}\n")
    else:
        sys.stdout.write(f"{READY_PREFIX}{server.endpoint_url}\n")
        if options.tls:
            sys.stdout.write(f"{CA_PREFIX}{server.ca_file}\n")
    if not options.as_json and not options.exit_with_parent:
        sys.stdout.write(
            "In another shell, so that AWS clients use it:\n"
            f"  export AWS_ENDPOINT_URL={server.endpoint_url} AWS_DEFAULT_REGION={options.region}\n"
            "  export AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x\n"
        )
        if options.tls:
            sys.stdout.write(f"  export AWS_CA_BUNDLE={shlex.quote(str(server.ca_file))}\n")
    sys.stdout.flush()
    try:
        # The system may deliver a signal to any thread, but Python runs its handler in this thread, once its wait has ended.
        while not stop.wait(0.5):
            pass
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
