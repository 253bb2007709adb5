"""Whose a name is: namespaces, hash keys, secrets."""

from __future__ import annotations

from hashlib import blake2b
from itertools import combinations

import pytest

from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.once.names import Names
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.testing import FakeAws
from tests.delivered import delivered

OLD, NEW = b"old secret of 24 bytes..", b"new secret of 24 bytes.."
ONE, OTHER = hash_partition_key("customer-7"), hash_partition_key("customer-8")


@pytest.fixture
def aws() -> FakeAws:
    aws = FakeAws()
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=1)
    return aws


def put(aws: FakeAws, data: bytes, namespace: str, secret: bytes | None = None) -> None:
    """Put a record with the name that everybody guesses, by a producer of its own; return when it is acknowledged."""
    config = ProducerConfig(
        idempotent=True, dedup_namespace=namespace, dedup_secret=secret, record_max_buffered_time=0.001
    )
    with Producer(config, client=aws.client("kinesis")) as producer:
        producer.put("orders", "customer-7", data, dedup_id="order-78").result(30)


@pytest.mark.parametrize("secret", [None, NEW])
def test_the_digest_by_the_words_of_the_page(secret: bytes | None) -> None:
    found = Names("Rechnung ä", secret).identity("order-78", 60, ONE)
    text = "Rechnung ä".encode()
    expected = blake2b(
        len(text).to_bytes(2, "big") + text + ONE + b"order-78", key=secret or b"", digest_size=14
    ).digest()
    assert found.incarnation + found.number.to_bytes(6, "big") == expected
    assert (found.date, found.window) == (None, 60.0)


def test_names_are_apart_by_everything_that_tells_records_apart() -> None:
    identities = [
        Names(namespace, secret).identity(name, 300, key)[:2]
        for namespace, secret, name, key in (
            ("orders", None, "78", ONE),
            ("orders", None, "79", ONE),
            ("orders", None, "78", OTHER),
            ("orders", OLD, "78", ONE),
            ("orders", NEW, "78", ONE),
            ("order", None, "s78", ONE),
            ("billing", None, "78", ONE),
        )
    ]
    assert all(one != other for one, other in combinations(identities, 2))


def test_one_name_of_two_services_is_two_records(aws: FakeAws) -> None:
    put(aws, b"created", "orders")
    put(aws, b"paid", "billing")
    put(aws, b"created again", "orders")
    assert delivered(aws, "orders") == [b"created", b"paid"]


def test_who_guesses_the_name_withholds_the_record_unless_there_is_a_secret(aws: FakeAws) -> None:
    """The forger knows stream, namespace, key and name, and may put records."""
    put(aws, b"forged", "orders")
    put(aws, b"withheld", "orders")
    assert delivered(aws, "orders") == [b"forged"], "what SECURITY.md says of names without a secret"
    put(aws, b"real", "orders", NEW)
    put(aws, b"real again", "orders", NEW)
    assert delivered(aws, "orders") == [b"forged", b"real"]


def test_a_change_of_the_secret_delivers_a_record_twice_at_most_and_loses_none(aws: FakeAws) -> None:
    for data, secret in ((b"1", OLD), (b"2", NEW), (b"3", OLD), (b"4", NEW)):
        put(aws, data, "orders", secret)
    assert delivered(aws, "orders") == [b"1", b"2"]
