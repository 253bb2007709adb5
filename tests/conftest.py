"""For all unit tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import botocore.loaders
import pytest
from hypothesis import settings

from tests import fuzz, waiting

# Container images often forbid bytecode. pytest would then rewrite the asserts of all test modules in each process of each run,
# which takes as long as a tenth of the tests.
sys.dont_write_bytecode = False

# Imports and collection make a million objects that stay, and the garbage collector would walk them again and again.
# `pytest_collection_finish` switches it on.
gc.disable()

# A client without credentials would ask the instance that it runs on for some.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

# Before any test module is imported: what imports `time.sleep` by its name is watched, too.
WATCH = waiting.install()

# A deadline for each example measures the machine's load, not the code. Without one, "too slow" allows ten examples 30 s
# of generation, where 0.2 s is the most that any strategy here takes on a machine with four times its load.
#
# Unit tests try the same examples each time, so that a run says something about the code and not about its luck; fuzzing tries new ones.
settings.register_profile(
    "unit", parent=settings.default, deadline=None, derandomize=True, database=None, max_examples=30
)
settings.register_profile(
    "fuzz", parent=settings.default, deadline=None, max_examples=100 * max(fuzz.TIMES, 1)
)
settings.load_profile("fuzz" if fuzz.TIMES else "unit")

# A test that hangs fails by its name. The longest takes two seconds on an idle machine.
_LIMIT = pytest.mark.timeout(3600 * fuzz.TIMES or int(os.environ.get("KINESIS_SDK_TEST_LIMIT", "300")))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are not of this kind of run (see `tests.fuzz`), and give each of the others a limit."""
    left_out = [item for item in items if _is_left_out(set(item.keywords))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        chosen = set(items).difference(left_out)
        items[:] = [item for item in items if item in chosen]
    for item in items:
        item.add_marker(_LIMIT, append=False)


def _is_left_out(marks: set[str]) -> bool:
    return marks.isdisjoint({"fuzz", "fuzz_only", "hypothesis"}) if fuzz.TIMES else "fuzz_only" in marks


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take the tests and the modules out of the garbage collector's sight, which would walk them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    WATCH.is_on = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    yield
    _fail_if_it_waited()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    yield
    WATCH.is_on = False
    _fail_if_it_waited()


def _fail_if_it_waited() -> None:
    found = WATCH.take()
    if found:
        pytest.fail("A unit test neither waits nor uses a network:\n" + "\n".join(found), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _shared_models() -> Iterator[None]:
    """Let all sessions of botocore share the models of AWS's services, which take longer to read than a test."""
    loader = botocore.loaders.create_loader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", lambda *_: loader)
        yield
