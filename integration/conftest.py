"""For all integration tests: dummy credentials, so that no test can reach a real account, and Ctrl-C."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from integration.building import build
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


@pytest.fixture(autouse=True)
def _test_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
