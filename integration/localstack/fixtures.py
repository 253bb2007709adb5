"""The fixture ``localstack``: the endpoint of one LocalStack for the whole test session. And what tests skip that lack a part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from integration.localstack.install import CannotInstallError
from integration.localstack.server import use


@contextmanager
def or_skip(what: str, required_by: str) -> Iterator[None]:
    """Skip the test if something cannot be installed here, unless this variable of the environment is 1."""
    try:
        yield
    except CannotInstallError as error:
        if os.environ.get(required_by) == "1":
            raise
        pytest.skip(f"{what} cannot run here: {error}")


@pytest.fixture(scope="session")
def localstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the endpoint URL. Skips if LocalStack cannot be installed, unless REQUIRE_LOCALSTACK=1 forbids that."""
    with ExitStack() as stack:
        with or_skip("LocalStack", "REQUIRE_LOCALSTACK"):
            endpoint = stack.enter_context(use(tmp_path_factory.mktemp("localstack") / "localstack.log"))
        yield endpoint
