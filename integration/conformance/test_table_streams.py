"""DynamoDB Streams of the fake against those of DynamoDB Local: one script, two endpoints, the known differences."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.conformance.comparing import Difference, compare, facts_of
from integration.localstack.dynamodb_local import dynamodb_local
from integration.localstack.install import CannotInstallError
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from kinesis_sdk.verify.scripts.table_streams import scenario_records, scenario_streams

_CRASH = (
    "An internal failure of the emulator. A request that names what does not exist is the client's error."
)
_INVALID = "400 ValidationException"

DIFFERENCES: dict[str, dict[str, Difference]] = {
    "records": {
        "at: of another shard": Difference(_INVALID, "500 InternalFailure", "fake", _CRASH),
        "at: no number": Difference(_INVALID, "500 InternalFailure", "fake", _CRASH),
        "unknown kind": Difference(_INVALID, "500 InternalFailure", "fake", _CRASH),
        "timestamp": Difference(
            _INVALID,
            "500 InternalFailure",
            "neither",
            "Newer versions of the API list AT_TIMESTAMP. The consumer does not use it, because neither knows it.",
        ),
    },
    "streams": {},
}
SCENARIOS = {"records": scenario_records, "streams": scenario_streams}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    session = dynamodb_local(tmp_path_factory.mktemp("dynamodb") / "log")
    try:
        endpoint = session.__enter__()
    except CannotInstallError as error:
        pytest.skip(f"no DynamoDB Local here: {error}")
    try:
        yield endpoint
    finally:
        session.__exit__(None, None, None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_facts(name: str, local: str) -> None:
    with FakeAwsServer(FakeAws()) as server:
        fake = facts_of(SCENARIOS[name], server.endpoint_url)
    problems = compare(fake, facts_of(SCENARIOS[name], local), DIFFERENCES[name])
    assert not problems, "\n".join(["", *problems]).replace("LocalStack", "DynamoDB Local")
