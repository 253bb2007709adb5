"""The fake AWS over TLS: whom clients trust, what they are told if they do not, and the process with ``--tls``."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import SSLError

from integration.commands import CLI, execute
from kinesis_sdk.testing import FakeAws, FakeAwsServer, VirtualClock, start_server_process
from tests import HANG

SHARD = "shardId-000000000000"
ONCE = Config(retries={"total_max_attempts": 1})


@pytest.fixture
def server() -> Iterator[FakeAwsServer]:
    with FakeAwsServer(FakeAws(clock=VirtualClock(), throttle=False), tls=True) as running:
        yield running


def test_boto3_with_the_ca_file(server: FakeAwsServer) -> None:
    kinesis = boto3.client("kinesis", endpoint_url=server.endpoint_url, verify=server.ca_file)
    kinesis.create_stream(StreamName="s", ShardCount=1, MaxRecordSizeInKiB=10240)
    data = os.urandom(5 << 20)
    kinesis.put_record(StreamName="s", Data=data, PartitionKey="k")
    iterator = kinesis.get_shard_iterator(StreamName="s", ShardId=SHARD, ShardIteratorType="TRIM_HORIZON")
    answer = kinesis.get_records(ShardIterator=iterator["ShardIterator"])
    assert [record["Data"] for record in answer["Records"]] == [data]
    kinesis.close()


def test_the_bundle_of_the_environment(server: FakeAwsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(server.ca_file))
    assert boto3.client("kinesis", endpoint_url=server.endpoint_url).list_streams()["StreamNames"] == []


def test_a_client_that_does_not_trust_it(server: FakeAwsServer, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        boto3.client("kinesis", endpoint_url=server.endpoint_url, config=ONCE).list_streams()
    trusting = boto3.client("kinesis", endpoint_url=server.endpoint_url, verify=server.ca_file)
    assert trusting.list_streams()["StreamNames"] == []


def test_a_client_without_tls_is_told(server: FakeAwsServer, caplog: pytest.LogCaptureFixture) -> None:
    parts = urlsplit(server.endpoint_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=HANG) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        # Everything until the server closes the connection; its log line is written before.
        answer = b"".join(iter(lambda: sock.recv(1 << 12), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"https" in answer


def test_alpn_chooses_http2_and_the_older_version_without_it(server: FakeAwsServer) -> None:
    parts = urlsplit(server.endpoint_url)
    for offered, chosen in [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), ([], None)]:
        context = ssl.create_default_context(cafile=server.ca_file)
        if offered:
            context.set_alpn_protocols(offered)
        with (
            socket.create_connection((parts.hostname, parts.port), timeout=HANG) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as tls,
        ):
            assert tls.selected_alpn_protocol() == chosen


def test_the_end_of_a_connection_is_told(server: FakeAwsServer) -> None:
    parts = urlsplit(server.endpoint_url)
    context = ssl.create_default_context(cafile=server.ca_file)
    with (
        socket.create_connection((parts.hostname, parts.port), timeout=HANG) as sock,
        context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False) as tls,
    ):
        tls.sendall(b"GET /_fake/health HTTP/1.1\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: tls.recv(1 << 12), b""))
    assert answer.endswith(b'{"status": "ok"}')


def test_the_ca_file_is_removed_unless_it_was_chosen(tmp_path: Path) -> None:
    with FakeAwsServer(FakeAws(), tls=True) as running:
        temporary = Path(str(running.ca_file))
        assert temporary.is_file()
    assert not temporary.parent.exists()
    chosen = tmp_path / "ca.pem"
    with FakeAwsServer(FakeAws(), tls=True, ca_file=chosen) as running:
        assert running.ca_file == str(chosen)
    assert b"BEGIN CERTIFICATE" in chosen.read_bytes()
    assert b"PRIVATE" not in chosen.read_bytes()


def test_a_process_with_tls() -> None:
    with start_server_process("--tls", "--create-stream", "s:1") as server:
        assert server.endpoint_url.startswith("https://127.0.0.1:")
        kinesis = boto3.client("kinesis", endpoint_url=server.endpoint_url, verify=server.ca_file)
        assert kinesis.list_streams()["StreamNames"] == ["s"]
        assert server.admin("health") == {"status": "ok"}
        kinesis.close()


def test_the_command_prints_what_clients_need(tmp_path: Path) -> None:
    ca_file = tmp_path / "my ca.pem"
    command = [*CLI, "fake", "--port", "0", "--tls", "--ca-file", str(ca_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(6)]
        url = lines[0].removeprefix("fake AWS listening on ").strip()
        context = ssl.create_default_context(cafile=str(ca_file))
        with urllib.request.urlopen(f"{url}/_fake/health", timeout=HANG, context=context) as answer:
            assert json.load(answer) == {"status": "ok"}
        process.terminate()
    assert lines[1] == f"certificate to trust: {ca_file}\n"
    assert f"export AWS_ENDPOINT_URL={url}" in lines[3]
    assert lines[5] == f"  export AWS_CA_BUNDLE='{ca_file}'\n"


def test_without_trustme_the_command_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "trustme.py").write_text(
        'raise ModuleNotFoundError("No module named trustme", name="trustme")\n'
    )
    ended = execute(
        [sys.executable, "-m", "kinesis_sdk.testing", "--port", "0", "--tls"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert ended.returncode == 2
    assert "pip install '.[fake]'" in ended.stderr
    assert "Traceback" not in ended.stderr
