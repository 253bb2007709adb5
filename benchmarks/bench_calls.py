"""CPU per hot call: boto3, the transport of this package, and a floor.

    python benchmarks/bench_calls.py [--rounds 20]

Over HTTP, against a sink in its own process that responds with prepared bodies. CPU is that of the client process, per
call, on one thread and on 16 threads that share a client:

* **boto3**: the client's method.
* **ours**: the same call by `Transport`.
* **floor**: a bare ``http.client`` connection per thread; the body by ``json.dumps``, Signature Version 4 by ``hmac``, the
  response by ``json.loads``. It has no pool, no TLS, no proxies, no retries and no refresh of credentials.

Candidates take turns, and the best round of each counts: on a shared machine, the minimum is the least disturbed value,
and ratios say more than times. The last lines say what a process pays that polls 1,000 quiet shards once a second and
renews their leases.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import http.client
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import boto3
from bench_transport import sink
from botocore.config import Config

from kinesis_sdk.common.transport import Transport, get_records

THREADS = 16
PER_TURN = 320
ITERATOR = "page-0-" + "0" * 200
RENEWAL = 6.6
"""Seconds between two renewals of a lease, by the default failover time."""

REQUESTS: dict[str, dict[str, Any]] = {
    "GetRecords": {"ShardIterator": ITERATOR, "Limit": 10_000},
    "GetShardIterator": {
        "StreamName": "orders",
        "ShardId": "shardId-000000000000",
        "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
        "StartingSequenceNumber": "49590338271490256608559692538361571095921575989136588802",
    },
    "UpdateItem": {
        "TableName": "leases",
        "Key": {"leaseKey": {"S": "shardId-000000000000"}},
        "UpdateExpression": "SET #c = :next, #s0 = :s0",
        "ConditionExpression": "#c = :seen AND attribute_not_exists(#d0)",
        "ExpressionAttributeNames": {"#c": "leaseCounter", "#s0": "throughputKBps", "#d0": "checkpointOwner"},
        "ExpressionAttributeValues": {":seen": {"N": "7"}, ":next": {"N": "8"}, ":s0": {"N": "0.25"}},
        "ReturnValues": "NONE",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    },
}
METHODS = {
    "GetRecords": ("kinesis", "get_records"),
    "GetShardIterator": ("kinesis", "get_shard_iterator"),
    "UpdateItem": ("dynamodb", "update_item"),
}
PAGES = [(1, 100), (100, 100), (10_000, 100)]
KEY_ID, SECRET, REGION = "AKIDEXAMPLE", "s" * 40, "us-east-1"

Call = Callable[[], object]


def floor(endpoint: str, operation: str) -> Call:
    """The minimum: sign and send by hand, on a connection of this thread."""
    host = urlsplit(endpoint).netloc
    local = threading.local()
    target = f"{'DynamoDB_20120810' if operation == 'UpdateItem' else 'Kinesis_20131202'}.{operation}"
    signed = "content-type;host;x-amz-date;x-amz-target"

    def digest(key: bytes, text: str) -> bytes:
        return hmac.digest(key, text.encode(), "sha256")

    def call() -> object:
        connection = getattr(local, "connection", None)
        if connection is None:
            connection = local.connection = http.client.HTTPConnection(host)
        body = json.dumps(REQUESTS[operation]).encode()
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        canonical = (
            f"POST\n/\n\ncontent-type:application/x-amz-json-1.1\nhost:{host}\nx-amz-date:{date}\n"
            f"x-amz-target:{target}\n\n{signed}\n{hashlib.sha256(body).hexdigest()}"
        )
        scope = f"{date[:8]}/{REGION}/kinesis/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{SECRET}".encode()
        for part in scope.split("/"):
            key = digest(key, part)
        connection.request(
            "POST",
            "/",
            body,
            {
                "Content-Type": "application/x-amz-json-1.1",
                "X-Amz-Target": target,
                "X-Amz-Date": date,
                "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, SignedHeaders={signed}, "
                f"Signature={digest(key, text).hex()}",
            },
        )
        return json.loads(connection.getresponse().read())

    return call


def turn(call: Call, threads: int, pool: ThreadPoolExecutor, calls: int) -> float:
    """Return the CPU seconds per call."""

    def some(count: int) -> None:
        for _ in range(count):
            call()

    started = time.process_time()
    if threads == 1:
        some(calls)
    else:
        list(pool.map(some, [calls // threads] * threads))
    return (time.process_time() - started) / calls


def measure(
    candidates: dict[str, Call], threads: int, rounds: int, calls: int = PER_TURN
) -> dict[str, float]:
    """Return the CPU seconds per call of each candidate in its best round."""
    best = dict.fromkeys(candidates, float("inf"))
    with ThreadPoolExecutor(THREADS) as pool:
        for call in candidates.values():
            turn(call, threads, pool, 2 * threads)
        for _ in range(rounds):
            for name, call in candidates.items():
                best[name] = min(best[name], turn(call, threads, pool, calls))
    return best


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=20, help="turns of each candidate (default: %(default)s)"
    )
    options = parser.parse_args()
    with sink() as endpoint:
        clients: dict[str, Any] = {
            service: boto3.client(
                service,
                endpoint_url=endpoint,
                region_name=REGION,
                aws_access_key_id=KEY_ID,
                aws_secret_access_key=SECRET,
                config=Config(
                    retries={"total_max_attempts": 1, "mode": "standard"}, max_pool_connections=THREADS
                ),
            )
            for service in ("kinesis", "dynamodb")
        }
        client = clients["kinesis"]
        ours: Any = Transport(client)
        renewals: Any = Transport(clients["dynamodb"])
        mine: dict[str, Call] = {
            "GetRecords": lambda: get_records(ours, ITERATOR, 10_000),
            "GetShardIterator": lambda: ours.get_shard_iterator(**REQUESTS["GetShardIterator"]),
            "UpdateItem": lambda: renewals.update_item(**REQUESTS["UpdateItem"]),
        }
        quiet: dict[str, float] = {}
        print(f"{'call':<18}{'threads':>8}{'':>8}{'CPU us':>9}{'to floor':>10}{'of boto3':>10}")
        for operation, (service, method) in METHODS.items():
            request = REQUESTS[operation]
            candidates: dict[str, Call] = {
                "boto3": lambda s=service, m=method, r=request: getattr(clients[s], m)(**r),
                "ours": mine[operation],
                "floor": floor(endpoint, operation),
            }
            for threads in (1, THREADS):
                costs = measure(candidates, threads, options.rounds)
                for name, cost in costs.items():
                    print(
                        f"{operation:<18}{threads:>8}{name:>8}{cost * 1e6:>9.0f}"
                        f"{cost / costs['floor']:>9.2f}x{cost / costs['boto3']:>10.2f}"
                    )
                    calls = {"GetRecords": 1000.0, "UpdateItem": 1000 / RENEWAL}.get(operation, 0.0)
                    if threads == THREADS:
                        quiet[name] = quiet.get(name, 0.0) + calls * cost
        print(f"\n{'page':<18}{'':>12}{'CPU us':>12}{'of boto3':>14}")
        for count, size in PAGES:
            iterator = f"page-{count}-{size}"
            costs = measure(
                {
                    "boto3": lambda i=iterator: get_records(client, i, 10_000),
                    "ours": lambda i=iterator: get_records(ours, i, 10_000),
                },
                1,
                options.rounds,
                max(2, min(PER_TURN, 20_000 // count)),
            )
            for name, cost in costs.items():
                print(
                    f"{f'{count:,} x {size:,} B':<18}{name:>12}{cost * 1e6:>12.0f}{cost / costs['boto3']:>14.2f}"
                )
        print("\n1,000 quiet shards, one poll a second and their renewals, cores of the calls alone:")
        print(", ".join(f"{name} {cores:.2f}" for name, cores in quiet.items()))
        for each in clients.values():
            each.close()


if __name__ == "__main__":
    main()
