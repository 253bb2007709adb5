"""The contract over the sinks that need no server, and broken sinks that it must find."""

from __future__ import annotations

import pytest

from kinesis_sdk.consumer.sinks.memory import InMemorySink, InMemoryTransaction
from kinesis_sdk.testing.contracts.sinks import SINK_CHECKS, SinkUnderTest


def memory():
    sink = InMemorySink()
    return SinkUnderTest(sink, lambda handle, effect: handle.append(effect), lambda: list(sink.effects))


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_in_memory(check):
    check(memory())


class Forgetful(InMemorySink):
    """Compares positions only."""

    def change(self, key, seen, row, effects):
        now = self.rows.get(key)
        if (now and now.position) != (seen and seen.position):
            return False
        self.rows[key] = row
        self.effects += effects
        return True


class Eager(InMemorySink):
    """Stores effects at once."""

    def begin(self, key, seen):
        transaction = InMemoryTransaction(self, key, seen)
        transaction.handle = self.effects
        return transaction


class Vague(InMemorySink):
    """Has one row for each stream."""

    def read(self, key):
        return super().read(key._replace(lease_key=""))

    def change(self, key, seen, row, effects):
        return super().change(key._replace(lease_key=""), seen, row, effects)


@pytest.mark.parametrize("kind", [Forgetful, Eager, Vague])
def test_a_broken_sink_is_found(kind):
    def fails(check):
        sink = kind()
        try:
            check(SinkUnderTest(sink, lambda h, e: h.append(e), lambda: list(sink.effects)))
        except AssertionError:
            return True
        return False

    assert any(fails(check) for check in SINK_CHECKS)
