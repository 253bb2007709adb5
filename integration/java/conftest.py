"""The fixture ``stage``: one account for all of these tests, for workers of both kinds."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack

import pytest

from integration.java.processes import Stage, open_stage
from integration.localstack.fixtures import or_skip


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a test that needs a version of the KCL that cannot be installed here; `Stage.start_worker` fetches it."""
    with or_skip(pyfuncitem.name, "REQUIRE_KCL"):
        return (yield)


@pytest.fixture(scope="package")
def _account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("java")
    with ExitStack() as stack:
        with or_skip("the real KCL", "REQUIRE_KCL"):
            stage = stack.enter_context(open_stage(folder, "--no-throttle"))
        yield stage


@pytest.fixture
def stage(_account: Stage) -> Iterator[Stage]:
    """Return an account without running workers; the test's workers are ended afterwards. Skips without Java 17 or npm."""
    try:
        yield _account
    finally:
        _account.end_workers()
