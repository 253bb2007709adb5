"""The test suites, their durations, and what they download.

`make test` runs the unit tests and one scene of each real part: a test that would notice if the part were broken. `make test-all` also
runs the rest. A scene is excluded from the suite that it comes from.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from integration.examples import peers
from integration.java import install as kcl
from integration.java.kpl import install as kpl
from integration.localstack import install as localstack
from integration.localstack.server import running_endpoint
from integration.multilang import install as multilang
from integration.postgres import why_no_postgres
from integration.prometheus import why_none as why_no_prometheus
from integration.spark import environments as spark


@dataclass(frozen=True)
class Suite:
    """Tests that run in one process of pytest.

    Attributes:
        name: For the command line.
        what: What it tests.
        seconds: Approximate duration on two idle cores, next to the suites that `run_tests` runs at the same time.
        arguments: Arguments of pytest.
        first: Whether it runs before all other suites, next to the other first ones.
        environment: Variables of its process.
        needs: Names of packages in `PACKAGES`.
    """

    name: str
    what: str
    seconds: float
    arguments: tuple[str, ...]
    first: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


# Five processes for two cores: while one waits for a thread, the others go on. pytest-xdist would import every
# test in each process and transfer each result, which takes a fifth of the time.
_LEASES = (
    "tests/consumer/leases",
    "tests/consumer/sinks",
    "tests/exactly_once",
    "tests/lambda_events",
    "tests/spark",
)
_OPERATORS = ("tests/admin", "tests/cli")
UNIT = (
    Suite("unit-operators", "unit tests of administration and commands", 50, _OPERATORS, first=True),
    Suite(
        "unit-others",
        "all unit tests that no other suite has",
        50,
        (
            "tests",
            *(f"--ignore={folder}" for folder in ("tests/consumer", "tests/producer", *_LEASES, *_OPERATORS)),
        ),
        first=True,
    ),
    Suite(
        "unit-producer", "unit tests of the producer, in virtual time", 50, ("tests/producer",), first=True
    ),
    Suite(
        "unit-consumer",
        "unit tests of the consumer, in virtual time",
        50,
        ("tests/consumer", *(f"--ignore={folder}" for folder in _LEASES)),
        first=True,
    ),
    Suite("unit-leases", "unit tests of leases, sinks, Spark and Lambda", 50, _LEASES, first=True),
)

SCENES = (
    Suite(
        "scene-spark",
        "PySpark writes and reads 20,000 flights on LocalStack, beside workers, with a split",
        90,
        ("integration/test_spark.py::test_scene",),
        needs=("localstack", "spark-newest"),
    ),
    Suite(
        "scene-java",
        "our workers and the real Java KCL join and replace each other on one lease table",
        110,
        ("integration/java/test_fleet.py::test_java_is_joined_and_replaced_and_joins_and_replaces",),
        needs=("localstack", "kcl"),
    ),
    Suite(
        "scene-fleet",
        "workers are killed, frozen and stopped, shards split and merged, a producer dies",
        60,
        ("integration/endtoend/test_endtoend.py::test_everything_on_the_fake",),
    ),
    Suite(
        "scene-effects",
        "each record has one effect on SQLite, DynamoDB and PostgreSQL while workers are killed with SIGKILL",
        45,
        (
            "integration/effects/test_effects.py::test_every_record_takes_effect_once_and_without_transactions_some_do_twice",
        ),
        needs=("postgresql",),
    ),
    Suite(
        "scene-multilang",
        "kinesis-sdk multilang with real child processes, through splits, merges and restarts",
        15,
        ("integration/multilang/test_daemon.py::test_splits_merges_and_aggregates_with_restarts",),
    ),
    Suite(
        "scene-console",
        "kinesis-sdk ui in Chromium: look at a shard, rewind it, confirm",
        15,
        ("integration/ui/test_live.py::test_the_command_shows_a_table_and_changes_it",),
    ),
    Suite(
        "scene-demo",
        "the README's first command: 20,000 flights, lost 0, duplicated 0",
        25,
        ("integration/test_demo.py::test_demo_accounts_for_every_record",),
    ),
    Suite(
        "scene-wheel",
        "a clone is built, installed into an empty environment, and used",
        40,
        ("integration/test_wheel.py::test_a_clone_installs_into_an_empty_environment_and_works",),
    ),
)

_BUT_SCENES = tuple(
    f"--deselect={argument}" for suite in SCENES for argument in suite.arguments if "::" in argument
)
_PAGES = (
    "integration/effects",
    "integration/examples",
    "integration/test_docs.py",
    "integration/test_reader.py",
    "integration/test_readme.py",
    "integration/test_tutorial.py",
)
_OWN_SUITES = (
    *_PAGES,
    "integration/conformance",
    "integration/endtoend",
    "integration/java",
    "integration/multilang",
    "integration/spark",
    "integration/test_spark.py",
    "integration/ui",
)

_SEED = os.environ.get("KINESIS_SDK_FUZZ_SEED", "0")
"""Seed of `make fuzz`. With zero, the random cases are the same as in `make test-all`."""

REST = (
    Suite(
        "fuzz",
        f"random schedules, fleets and Spark queries in virtual time, from seed {_SEED}",
        480,
        ("-n", "2", "--dist", "worksteal", "tests"),
        environment={
            "KINESIS_SDK_FUZZ": os.environ.get("KINESIS_SDK_FUZZ", "1"),
            "KINESIS_SDK_FUZZ_SEED": _SEED,
            "PYTHONHASHSEED": str(int(_SEED) % 2**32),
        },
    ),
    Suite(
        "processes",
        "sockets, signals, commands, stores, the wheel",
        800,
        ("integration", *(f"--ignore={path}" for path in _OWN_SUITES), *_BUT_SCENES),
        needs=("localstack", "oldest", "postgresql", "prometheus"),
    ),
    Suite(
        "pages",
        "what the pages say, the examples, exactly-once effects",
        800,
        (*_PAGES, "--ignore-glob=integration/examples/test_long*.py", *_BUT_SCENES),
        needs=("localstack", "peers", "postgresql", "kclpy", "spark-newest"),
    ),
    # Playwright keeps an event loop in the main thread, so its tests need their own process.
    Suite("browser", "the web console in Chromium", 150, ("integration/ui", *_BUT_SCENES)),
    Suite(
        "conformance",
        "our fake AWS beside LocalStack and DynamoDB Local",
        120,
        ("integration/conformance",),
        needs=("localstack",),
    ),
    Suite(
        "endtoend",
        "processes that are killed, frozen, resharded and cut off",
        700,
        ("integration/endtoend", *_BUT_SCENES),
        needs=("localstack",),
    ),
    Suite(
        "java",
        "one lease table with the real Java KCL",
        500,
        ("integration/java", "--ignore-glob=integration/java/test_long*.py", *_BUT_SCENES),
        needs=("localstack", "kcl", "kcl-maven", "kpl", "node-deaggregator"),
    ),
    Suite(
        "multilang",
        "children that are not ours, below our daemon and the Java one",
        150,
        ("integration/multilang", "--ignore=integration/multilang/test_long.py", *_BUT_SCENES),
        needs=("kcl", "kclpy", "kcl-node"),
    ),
    Suite(
        "spark",
        "two versions of Spark",
        800,
        ("integration/test_spark.py", *_BUT_SCENES),
        needs=("localstack", "spark-newest", "spark-oldest"),
    ),
)
SUITES = (*UNIT, *SCENES, *REST)
GROUPS = {
    "unit": UNIT,
    "test": (*UNIT, *SCENES),
    "rest": REST,
    "scenes": SCENES,
    "integration": (*SCENES, *REST[1:]),
}


@dataclass(frozen=True)
class Package:
    """Something that a suite downloads from package registries on its first run, into ``.cache``.

    Attributes:
        title: Name and size.
        seconds: Approximate duration of the download.
        is_there: Whether it was fetched before.
        why_not: Why the tests that need it are skipped on this machine; None if they run.
        fetch: Fetches it before the suites begin, so that no two suites do so at once. None if only one suite needs it.
    """

    title: str
    seconds: float
    is_there: Callable[[], bool]
    why_not: Callable[[], str | None] = lambda: None
    fetch: Callable[[], object] | None = None

    @property
    def name(self) -> str:
        """Title without the size."""
        return self.title.partition(" (")[0]


# Cached: each starts a process, and several packages ask.
@functools.cache
def _why_no_localstack() -> str | None:
    try:
        localstack.require("node", 18, "it")
        localstack.require("java", 17, "it")
    except localstack.CannotInstallError as error:
        return str(error)
    return None


@functools.cache
def _why_no_maven() -> str | None:
    try:
        kcl.maven.require_maven()
        kcl.require("javac", 17, "it")
    except localstack.CannotInstallError as error:
        return str(error)
    return _why_no_localstack()


def _why_no_spark(version: str) -> str | None:
    try:
        spark.check_machine(version)
    except spark.CannotRunSparkError as error:
        return str(error)
    return None


def _has_spark(version: str) -> bool:
    return (spark.CACHE / f"spark-{version}" / ".installed").exists()


PACKAGES = {
    "localstack": Package(
        "LocalStack and DynamoDB Local (320 MB, half a minute; not needed with AWS_ENDPOINT_URL)",
        30,
        lambda: running_endpoint() is not None or localstack.folder().is_dir(),
        lambda: None if running_endpoint() else _why_no_localstack(),
        lambda: None if running_endpoint() else localstack.install(),
    ),
    "kcl": Package(
        "Java KCL 3.1.3 (34 MB)", 5, lambda: kcl.folder().is_dir(), _why_no_localstack, kcl.install
    ),
    "kcl-maven": Package(
        f"Java KCL {' and '.join(kcl.MAVEN_VERSIONS)} (28 MB each)",
        10,
        lambda: all(kcl.maven.folder(kcl.lock(version)).is_dir() for version in kcl.MAVEN_VERSIONS),
        _why_no_maven,
    ),
    "kpl": Package(f"KPL {kpl.KPL} (87 MB)", 10, lambda: kcl.maven.folder(kpl.LOCK).is_dir(), _why_no_maven),
    "node-deaggregator": Package(
        "aws-kinesis-agg for Node (13 MB)", 5, lambda: multilang.node_deaggregator_folder().is_dir()
    ),
    "kclpy": Package("amazon_kclpy (1 MB)", 2, lambda: multilang.amazon_kclpy_folder().is_dir()),
    "kcl-node": Package("aws-kcl for Node (1 MB)", 5, lambda: multilang.aws_kcl_folder().is_dir()),
    "peers": Package("async-kinesis and aiokpl (45 MB)", 10, lambda: peers.folder().is_dir(), peers.why_not),
    "oldest": Package(
        "the oldest boto3 and protobuf (50 MB for each Python that is found)", 20, lambda: False
    ),
    "postgresql": Package("PostgreSQL", 0, lambda: True, why_no_postgres),
    "prometheus": Package("Prometheus", 0, lambda: True, why_no_prometheus),
    "spark-newest": Package(
        f"Spark {spark.NEWEST} (1 GB, a minute)",
        60,
        lambda: _has_spark(spark.NEWEST),
        lambda: _why_no_spark(spark.NEWEST),
        lambda: spark.prepare(spark.NEWEST),
    ),
    "spark-oldest": Package(
        f"Spark {spark.OLDEST} (1 GB, a minute)",
        60,
        lambda: _has_spark(spark.OLDEST),
        lambda: _why_no_spark(spark.OLDEST),
        lambda: spark.prepare(spark.OLDEST),
    ),
}


def choose(names: Sequence[str]) -> list[Suite]:
    """Return the suites with these names or in these groups, in their usual order; all suites without names.

    Raises SystemExit for an unknown name.
    """
    known = {suite.name: (suite,) for suite in SUITES} | GROUPS
    if unknown := sorted(set(names).difference(known)):
        raise SystemExit(f"unknown suite {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [suite for name in names for suite in known[name]]
    return [suite for suite in SUITES if not names or suite in chosen]


def packages(suites: Sequence[Suite]) -> list[Package]:
    """Return the packages that suites need from registries."""
    needed = {name for suite in suites for name in suite.needs}
    return [package for name, package in PACKAGES.items() if name in needed]


def to_fetch(found: Sequence[Package]) -> list[Package]:
    """Return the missing packages that the suites do not fetch themselves."""
    return [
        package
        for package in found
        if package.fetch is not None and package.why_not() is None and not package.is_there()
    ]


def announce(found: Sequence[Package]) -> Iterator[str]:
    """Yield a line for each package: whether it is there, will be fetched, or cannot be used here."""
    for package in found:
        if reason := package.why_not():
            yield f"  {package.title}: its tests are skipped, {reason}"
        else:
            yield f"  {package.title}: {'is there' if package.is_there() else 'will be fetched'}"
