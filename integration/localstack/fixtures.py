"""The fixture ``localstack``: the endpoint of one LocalStack for the whole test session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from integration.localstack.install import CannotInstallError
from integration.localstack.server import use


@pytest.fixture(scope="session")
def localstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the endpoint URL. Skips if LocalStack cannot be installed, unless REQUIRE_LOCALSTACK=1 forbids that."""
    session = use(tmp_path_factory.mktemp("localstack") / "localstack.log")
    try:
        endpoint = session.__enter__()
    except CannotInstallError as error:
        if os.environ.get("REQUIRE_LOCALSTACK") == "1":
            raise
        pytest.skip(f"no LocalStack here: {error}")
    try:
        yield endpoint
    finally:
        session.__exit__(None, None, None)
