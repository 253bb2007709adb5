"""For all integration tests: dummy credentials, so that no test can reach a real account, and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.building import build
from integration.commands import KEYS
from integration.localstack.fixtures import localstack

__all__ = ["localstack"]


def pytest_configure() -> None:
    """Accept SIGINT. A shell starts background jobs with SIGINT ignored, and the processes that tests start would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this tree."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="package", autouse=True)
def _test_account() -> Iterator[None]:
    """Also for fixtures of a package or a module that make clients."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            patch.delenv(name, raising=False)
        for name, value in KEYS.items():
            patch.setenv(name, value)
        yield
