"""Workers whose leases are not in DynamoDB: the store is named by a URL, and no call to DynamoDB is made."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import ConfigError, LeaseStoreError
from kinesis_sdk.consumer import (
    ConsumerConfig,
    CoordinationConfig,
    LeaseTableConfig,
    SqlLeaseStore,
    Worker,
)
from kinesis_sdk.consumer import worker as worker_module
from tests.consumer.worker_scenario import QUICK, Scenario

pytest.importorskip("sqlalchemy")


@pytest.fixture(autouse=True)
def no_dynamodb(monkeypatch):
    """Make no client: a worker that asks for one of DynamoDB fails."""

    def refuse(service, **options):
        raise AssertionError(f"a client for {service}")

    monkeypatch.setattr(worker_module, "make_client", refuse)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/leases.db"


def consume(scenario, worker, count):
    with worker:
        scenario.wait(count)
    return worker


def numbers(first, count):
    return [b"%d" % number for number in range(first, first + count)]


def test_a_worker_without_dynamodb_resumes_from_its_file(url):
    scenario = Scenario()
    scenario.put(*numbers(0, 10))
    consume(scenario, scenario.worker(lease_store=url), 10)
    scenario.put(*numbers(10, 10))
    consume(scenario, scenario.worker(lease_store=url), 20)
    assert sorted(scenario.got) == sorted(numbers(0, 20)), "nothing twice after a clean stop"
    store = SqlLeaseStore(url, "billing")
    leases = store.scan().leases
    assert len(leases) == 2
    assert all(lease.owner is None and lease.is_started for lease in leases)
    store.close()


@pytest.mark.parametrize("until", [None, "now"])
def test_the_store_of_the_config(url, until):
    scenario = Scenario()
    scenario.put(*numbers(0, 10))
    config = QUICK.with_fields(lease_store=url, table_name="other")
    worker = scenario.worker(config=config, until=until, lease_store=None)
    if until is None:
        consume(scenario, worker, 10)
    else:
        worker.run()
    assert sorted(scenario.got) == sorted(numbers(0, 10))
    store = SqlLeaseStore(url, "other")
    assert len(store.scan().leases) == 2
    assert store.application == "other", "table_name tells the applications of a database apart"
    store.close()


def test_the_argument_takes_precedence(url, tmp_path):
    scenario = Scenario()
    scenario.put(*numbers(0, 10))
    config = QUICK.with_fields(lease_store=f"sqlite:///{tmp_path}/unused.db")
    consume(scenario, scenario.worker(config=config, lease_store=url), 10)
    assert [path.name for path in tmp_path.glob("*.db")] == ["leases.db"]


def test_leases_in_memory_end_with_their_worker():
    scenario = Scenario()
    scenario.put(*numbers(0, 10))
    for count in (10, 20):
        consume(scenario, scenario.worker(lease_store="memory://"), count)
    assert sorted(scenario.got) == sorted(numbers(0, 10) * 2)


def test_names_of_one_character_are_enough_without_dynamodb(url):
    Worker("orders", application_name="a", handler=lambda batch: None, lease_store=url)


@pytest.mark.parametrize("value", ["redis://host", "", "leases.db", 5])
def test_what_is_not_a_store_names_field_and_examples(value):
    with pytest.raises(ConfigError, match=r"^lease_store="):
        Worker("orders", application_name="billing", handler=lambda batch: None, lease_store=value)
    if isinstance(value, str):
        with pytest.raises(ConfigError, match=r"^lease_table\.lease_store="):
            LeaseTableConfig(lease_store=value)


def test_a_config_shows_no_password():
    config = ConsumerConfig().with_fields(lease_store="postgresql+psycopg://me:secret@host/db")
    assert "secret" not in repr(config)


def test_java_fleets_need_dynamodb(url):
    config = ConsumerConfig(coordination=CoordinationConfig(worker_metrics="lease_table"))
    with pytest.raises(ConfigError, match="worker_metrics="):
        Worker("orders", application_name="billing", handler=print, config=config, lease_store=url)


def test_a_database_that_cannot_be_opened_ends_the_start(tmp_path):
    scenario = Scenario()
    tmp_path.joinpath("leases.db").write_text("this is not a database, " * 100)
    worker = scenario.worker(lease_store=f"sqlite:///{tmp_path}/leases.db")
    with pytest.raises(LeaseStoreError, match="not a database"):
        worker.start()
    worker.stop()
