"""For all unit tests."""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Iterator

import botocore.loaders
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import fuzz, waiting

# Imports and collection make a million objects that stay, and the garbage collector would walk them again and again.
# `pytest_collection_finish` switches it on.
gc.disable()

# A client without credentials would ask the instance that it runs on for some.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

# Before any test module is imported: what imports `time.sleep` by its name is watched, too.
WATCH = waiting.install()

# A deadline for each example, and a limit for drawing it, measure the machine's load, not the code.
#
# The same command tries the same examples each time, so that a run says something about the code and not about its luck:
# without a seed those of each test (`derandomize`), and with one those of the seed. Examples of earlier runs are not kept.
settings.register_profile(
    "same-each-time",
    parent=settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not fuzz.FIRST_SEED,
    database=None,
    max_examples=fuzz.how_many(unit=20, fuzz=100),
)
settings.load_profile("same-each-time")

# Hypothesis also draws the constants of all modules that were imported so far. Which ones these are depends on the tests that ran before,
# and on the path of the clone: modules below a folder named `tests` do not count. Versions before 6.131 know no such constants.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = providers.Constants

# A test that hangs fails by its name. The longest takes two seconds on an idle machine.
_LIMIT = pytest.mark.timeout(3600 * fuzz.TIMES or int(os.environ.get("KINESIS_SDK_TEST_LIMIT", "300")))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis begin with the seed of `make fuzz`, too."""
    if fuzz.FIRST_SEED and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(fuzz.FIRST_SEED)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to play the failures of fuzzing again."""
    failed = terminalreporter.stats.get("failed", [])
    if not fuzz.TIMES or not failed:
        return
    terminalreporter.section("to play the same cases again")
    names = ("KINESIS_SDK_FUZZ", "KINESIS_SDK_FUZZ_SEED", "PYTHONHASHSEED")
    variables = " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    for report in failed:
        terminalreporter.line(f"{variables} {sys.executable} -m pytest -n 0 {shlex.quote(report.nodeid)}")


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
