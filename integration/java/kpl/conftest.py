"""The fixture ``tls_stage``: an account that speaks TLS, which the KPL's native process requires."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from integration.java.kpl import install
from integration.java.processes import Stage, open_stage
from integration.localstack.install import CannotInstallError


@pytest.fixture(scope="package")
def _tls_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("kpl")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        opened = open_stage(folder, "--no-throttle", "--tls", "--reshard-delay", "0.5", fake_dynamodb=True)
        try:
            install.putter(), install.judge()
            stage = opened.__enter__()
        except CannotInstallError as error:
            if os.environ.get("REQUIRE_KCL") == "1":
                raise
            pytest.skip(f"the real KPL cannot run here: {error}")
        try:
            yield stage
        finally:
            opened.__exit__(None, None, None)


@pytest.fixture
def tls_stage(_tls_account: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Return an account without running workers; the test's workers are ended afterwards. Skips without Java 17 or Maven."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(_tls_account.ca_file))
    try:
        yield _tls_account
    finally:
        _tls_account.end_workers()
