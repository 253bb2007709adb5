"""The harness itself: what it starts answers, what it stops is gone, and it says what it lacks."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest

from integration.localstack import install as installing
from integration.localstack import server


def test_all_services_answer(localstack: str) -> None:
    assert boto3.client("sts", endpoint_url=localstack).get_caller_identity()["Account"] == "000000000000"
    cloudwatch = boto3.client("cloudwatch", endpoint_url=localstack)
    cloudwatch.put_metric_data(Namespace="harness", MetricData=[{"MetricName": "m", "Value": 1.0}])
    assert [one["MetricName"] for one in cloudwatch.list_metrics(Namespace="harness")["Metrics"]] == ["m"]


def test_a_server_of_ones_own_leaves_no_children(localstack: str, tmp_path: Path) -> None:
    if server.running_endpoint() is not None:
        pytest.skip("the environment names a LocalStack, nothing is installed")
    with server.start(installing.install(), tmp_path / "log") as (endpoint, process):
        assert endpoint != localstack
        boto3.client("kinesis", endpoint_url=endpoint).list_streams()
        children = server.family(process.pid)
        assert children
    assert process.poll() is not None
    assert not children & server._parents().keys()


@pytest.mark.parametrize("pointer", ["AWS_ENDPOINT_URL", "LOCALSTACK_HOST", "EDGE_PORT"])
def test_one_that_runs_already_is_used(
    pointer: str, localstack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "LOCALSTACK_HOST", "EDGE_PORT", "USE_SSL"):
        monkeypatch.delenv(name, raising=False)
    address = urlsplit(localstack)
    values = {
        "AWS_ENDPOINT_URL": {"AWS_ENDPOINT_URL": localstack},
        "LOCALSTACK_HOST": {"LOCALSTACK_HOST": address.netloc},
        "EDGE_PORT": {"LOCALSTACK_HOST": str(address.hostname), "EDGE_PORT": str(address.port)},
    }
    for name, value in values[pointer].items():
        monkeypatch.setenv(name, value)
    log = tmp_path / "log"
    with server.use(log) as endpoint:
        assert urlsplit(endpoint).port == address.port
        assert boto3.client("kinesis", endpoint_url=endpoint).list_streams()
    assert not log.exists(), "no second one was started"
    assert server.is_healthy(localstack), "it is not ours to stop"


def test_one_that_is_named_and_does_not_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(RuntimeError, match="AWS_ENDPOINT_URL"), server.use(tmp_path / "log"):
        pass
