from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.examples.support import Account, environment_for
from kinesis_sdk.testing import FakeAws, FakeAwsServer


@pytest.fixture
def account() -> Iterator[Account]:
    """An empty fake account over HTTP."""
    aws = FakeAws()
    with FakeAwsServer(aws) as server:
        yield Account(aws, environment_for(server.endpoint_url))
