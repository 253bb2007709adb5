"""The health endpoint over sockets: slow clients, rubbish, ports in use, and a real worker behind it."""

from __future__ import annotations

import http.client
import json
import socket
import time
from contextlib import suppress

import pytest

from integration.waiting import eventually
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.page_server import PageServer, pages_by_path, probe_page
from kinesis_sdk.consumer import ConsumerConfig, Worker
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests import HANG


@pytest.fixture
def server():
    ready = [True]
    page = pages_by_path(
        {"/ready": lambda: probe_page("ready", [] if ready[0] else ["it stops"]), "/broken": lambda: 1 / 0}
    )
    server = PageServer(page, "127.0.0.1", 0, setting="health_port")
    server.ready = ready
    yield server
    server.close()


def get(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_answers(server, caplog):
    assert get(server.port, "/ready?verbose=1") == (200, b'{\n  "ready": true,\n  "problems": []\n}\n')
    assert get(server.port, "/ready", "HEAD") == (200, b"")
    server.ready[0] = False
    assert get(server.port, "/ready")[0] == 503
    assert get(server.port, "/")[0] == 404
    assert get(server.port, "/ready", "POST")[0] == 501
    assert get(server.port, "/broken")[0] == 500
    assert "failed to answer /broken" in caplog.text


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01" * 50,
        b"GET /ready" * 5000,
        b"GET\r\n\r\n",
        b"A" * 100_000,
    ],
)
def test_rubbish_does_no_harm(server, rubbish):
    # The server may close the connection at any point of this.
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG) as client, suppress(OSError):
        client.sendall(rubbish)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    assert get(server.port, "/ready")[0] == 200


def test_slow_clients_do_not_keep_others_out(server):
    """Each sends a byte now and then: within any timeout of a single read."""
    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=HANG) for _ in range(40)]
    try:
        started = time.monotonic()
        while True:
            for client in clients:
                try:
                    client.send(b"G")
                except OSError:
                    continue
            try:
                assert get(server.port, "/ready")[0] == 200
                break
            except (OSError, http.client.HTTPException):
                assert time.monotonic() - started < HANG
            time.sleep(0.2)
    finally:
        for client in clients:
            client.close()


def test_a_port_in_use_is_named(server):
    with pytest.raises(ConfigError, match=f"health_port={server.port}"):
        PageServer(pages_by_path({}), "127.0.0.1", server.port, setting="health_port")
    worker = Worker(
        "orders",
        application_name="app",
        handler=lambda batch: None,
        health_port=server.port,
        region_name="us-east-1",
    )
    with pytest.raises(ConfigError, match=f"health_port={server.port}"):
        worker.start()


def test_a_host_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match="health_port"):
        PageServer(pages_by_path({}), "no such host", 0, setting="health_port")


def test_a_worker_from_its_start_to_its_end():
    aws = FakeAws()
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=2)
    with FakeAwsServer(aws) as fake:
        worker = Worker(
            "orders",
            application_name="app",
            handler=lambda batch: None,
            config=ConsumerConfig(initial_position="TRIM_HORIZON"),
            endpoint_url=fake.endpoint_url,
            region_name="us-east-1",
            health_port=0,
        )
        assert worker.health_port is None
        with worker:
            port = worker.health_port
            eventually(lambda: get(port, "/ready")[0] == 200 and len(worker.health().shards) == 2)
            assert get(port, "/live") == (200, b'{\n  "live": true,\n  "problems": []\n}\n')
            status = json.loads(get(port, "/status")[1])
            assert status["worker_id"] == worker.worker_id
            assert len(status["shards"]) == 2
            assert worker.health().stuck_loops == ()
        with pytest.raises(OSError):
            get(port, "/live")
