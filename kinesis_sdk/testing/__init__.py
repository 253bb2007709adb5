"""A fake AWS for tests, demos and benchmarks: Kinesis, DynamoDB, CloudWatch and STS in memory.

In process, with a clock that the test controls::

    clock = VirtualClock()
    aws = FakeAws(clock=clock)
    kinesis = aws.client("kinesis")
    kinesis.create_stream(StreamName="orders", ShardCount=2)
    aws.faults.add(Fault(kind="partial", operation="PutRecords", probability=0.1))

Over HTTP, for any AWS client in any process::

    with FakeAwsServer(FakeAws()) as server:
        boto3.client("kinesis", endpoint_url=server.endpoint_url, …)

    with start_server_process("--create-stream", "orders:4") as server:
        …

From a shell: ``python -m kinesis_sdk.testing --help``.

It is as strict as AWS: MD5 routing, per-shard limits, iterators that expire, closed shards that name their children, and conditional
writes of which exactly one succeeds. It stores nothing on disk, encrypts nothing and checks no
signatures. It speaks HTTP/1.1; with the extra ``fake`` also TLS (``FakeAwsServer(…, tls=True)``) and HTTP/2, which the
SDK for Java uses for Kinesis.
"""

from __future__ import annotations

from kinesis_sdk.testing.aws import FakeAws
from kinesis_sdk.testing.client import FakeClient
from kinesis_sdk.testing.clock import VirtualClock
from kinesis_sdk.testing.errors import AwsError, ResponseLostError
from kinesis_sdk.testing.faults import Fault, FaultKind, Faults
from kinesis_sdk.testing.http.process import ServerProcess, start_server_process
from kinesis_sdk.testing.http.server import FakeAwsServer

__all__ = [
    # the account
    "FakeAws",
    "FakeClient",
    # time
    "VirtualClock",
    # faults
    "Fault",
    "FaultKind",
    "Faults",
    # over HTTP
    "FakeAwsServer",
    "ServerProcess",
    "start_server_process",
    # errors of the wire-level interface
    "ResponseLostError",
    "AwsError",
]
