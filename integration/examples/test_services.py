"""Web services: the FastAPI service below uvicorn, and `prefork/app.py` below gunicorn with several processes."""

from __future__ import annotations

import http.client
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration.examples.support import BIN, EXAMPLES, TIMEOUT, Account
from integration.waiting import eventually
from kinesis_sdk.testing import Fault


def post(port: int, path: str, body: bytes) -> tuple[int, str | None]:
    """Send a request; return the status and the header Retry-After."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("POST", path, body)
        response = connection.getresponse()
        response.read()
        return response.status, response.headers["Retry-After"]
    finally:
        connection.close()


def port_in(log: Path, before: str) -> int:
    """Wait until a server's log says where it listens."""
    eventually(lambda: before in log.read_text(), f"the server does not listen: {log.read_text()}")
    return int(log.read_text().split(before)[1].split()[0].strip("/)").rpartition(":")[2])


def test_fastapi_service(account: Account, tmp_path: Path) -> None:
    """`fastapi_service.py` answers 201 once a record is stored, 503 while the stream takes less, and stores all at its end."""
    pytest.importorskip("fastapi")
    account.create_stream("orders", 2)
    server = account.start(
        BIN / "uvicorn",
        "--app-dir",
        EXAMPLES,
        "--port",
        "0",
        "fastapi_service:app",
        folder=tmp_path,
        log=tmp_path / "log",
    )
    try:
        port = port_in(tmp_path / "log", "Uvicorn running on ")
        assert post(port, "/orders/customer-7", b'{"total": 12}') == (201, None)
        assert [(one.partition_key, one.data) for one in account.records("orders")] == [
            ("customer-7", b'{"total": 12}')
        ]
        assert post(port, "/orders/customer-7", b"x" * (11 * 2**20))[0] == 400
        # Nothing is stored: the buffer of 4 MiB fills, and the requests that find no room within half a second get a 503.
        account.aws.faults.add(Fault(kind="throttle", operation="PutRecords"))
        with ThreadPoolExecutor(12) as threads:
            requests = [
                threads.submit(post, port, f"/orders/customer-{number}", b"x" * 700_000)
                for number in range(12)
            ]
            eventually(lambda: sum(request.done() for request in requests) >= 4, "no request was refused")
            account.aws.faults.clear()
            answers = [request.result(TIMEOUT) for request in requests]
        assert {status for status, _ in answers} == {201, 503}
        assert {after for status, after in answers if status == 503} == {"1"}
        stored = [status for status, _ in answers].count(201)
        server.send_signal(signal.SIGTERM)
        assert server.wait(TIMEOUT) in (0, -signal.SIGTERM)  # some versions of uvicorn raise the signal again
    finally:
        server.kill()
        server.wait()
    assert len(account.records("orders")) == 1 + stored


def test_gunicorn_loses_nothing_at_sigterm(account: Account, tmp_path: Path) -> None:
    """Every record that `app.py` accepted with 202 is stored when gunicorn has ended; `gunicorn.conf.py` makes it so."""
    pytest.importorskip("gunicorn")
    account.create_stream("orders", 2)
    # While calls take a second, accepted records wait in the processes.
    account.aws.faults.add(Fault(kind="slow", operation="PutRecords", seconds=1.0))
    folder = tmp_path / "prefork"
    shutil.copytree(EXAMPLES / "prefork", folder)
    server = account.start(
        BIN / "gunicorn",
        "--bind",
        "127.0.0.1:0",
        "app:application",
        folder=folder,
        log=tmp_path / "log",
        HOME=str(tmp_path),  # for gunicorn's control socket
    )
    try:
        port = port_in(tmp_path / "log", "Listening at: ")
        eventually(lambda: (tmp_path / "log").read_text().count("the producer is open") == 2, "no workers")
        with ThreadPoolExecutor(8) as threads:
            answers = list(
                threads.map(
                    lambda number: post(port, f"/customer-{number}", b"order %d" % number), range(400)
                )
            )
        assert [status for status, _ in answers] == [202] * 400
        server.send_signal(signal.SIGTERM)
        assert server.wait(TIMEOUT) == 0, (tmp_path / "log").read_text()
    finally:
        server.kill()
        server.wait()
    stored = [record.data for record in account.records("orders")]
    assert sorted(set(stored)) == sorted(b"order %d" % number for number in range(400))
    log = (tmp_path / "log").read_text()
    assert log.count("records that are neither stored nor spooled: 0") == 2
    assert "Traceback" not in log
