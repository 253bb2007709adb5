"""The fixture ``tls_stage``: an account that speaks TLS, which the KPL's native process requires."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from integration.java.kpl import install
from integration.java.processes import Stage, open_stage
from integration.localstack.fixtures import or_skip


@pytest.fixture(scope="package")
def _tls_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("kpl")
    options = ("--no-throttle", "--tls", "--reshard-delay", "0.5")
    with ExitStack() as stack:
        with or_skip("the real KPL", "REQUIRE_KCL"):
            install.putter(), install.judge()
            stage = stack.enter_context(open_stage(folder, *options, fake_dynamodb=True))
        yield stage


@pytest.fixture
def tls_stage(_tls_account: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Return an account without running workers; the test's workers are ended afterwards. Skips without Java 17 or Maven."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(_tls_account.ca_file))
    try:
        yield _tls_account
    finally:
        _tls_account.end_workers()
