"""The contract of `Sink` as checks for any sink.

Use them from pytest (this module itself needs only the standard library):

```python
import pytest
from kinesis_sdk.testing.contracts.sinks import SINK_CHECKS, SinkUnderTest

@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_sink_contract(check):
    database = empty_database()
    check(
        SinkUnderTest(
            sink=MySink(database),
            write=lambda handle, effect: handle.insert(effect),   # one effect, in a transaction
            effects=lambda: database.all_effects(),               # all that are stored
        )
    )
```

Every check needs a fresh, empty sink. It raises an `AssertionError` that names the rule and shows what the sink returned. In some checks,
threads compete with each other. A broken sink may pass these by luck, so run them repeatedly against a new sink.
Wrap an `AsyncSink` with `SinkUnderTest.of_async`. The errors that a sink raises when its store fails are not checked.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import AsyncSink, Sink
from kinesis_sdk.consumer.sinks import DeletesRows, SinkKey, SinkRow, SinkTransaction

__all__ = ["SINK_CHECKS", "Check", "SinkUnderTest"]

KEY = SinkKey("app", "orders", "shardId-000000000000")
RACERS, RACE_ROUNDS = 8, 5
_DEADLINE = 60.0
"""Maximum seconds to wait for all racers."""

_LONGEST = "9" * 129
"""The largest sequence number that Kinesis may send."""


@dataclass(frozen=True)
class SinkUnderTest:
    """A sink, and the functions with which a test writes and reads effects.

    Attributes:
        sink: The sink.
        write: Writes an effect, which is a text, to the ``handle`` of a transaction.
        effects: Returns all effects that are stored.
    """

    sink: Sink
    write: Callable[[Any, str], object]
    effects: Callable[[], Iterable[str]]

    @classmethod
    def of_async(
        cls,
        sink: AsyncSink,
        write: Callable[[Any, str], Awaitable[object]],
        effects: Callable[[], Iterable[str]],
    ) -> SinkUnderTest:
        """Return an `AsyncSink` for the same checks, which wait for its coroutines on one event loop.

        Args:
            sink: The sink.
            write: The same as the attribute, but returns a coroutine.
            effects: As the attribute.
        """
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="sink contract", daemon=True).start()

        def wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result(_DEADLINE)

        async def write_one(handle: Any, effect: str) -> None:
            await write(handle, effect)

        return cls(
            cast("Sink", _Waiting(sink, wait)),
            lambda handle, effect: wait(write_one(handle, effect)),
            effects,
        )


class _Waiting:
    """A synchronous view of an `AsyncSink` or one of its transactions: each method waits for its coroutine."""

    def __init__(self, inner: Any, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._wait = wait

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *arguments: self._wait(found(*arguments))

    def begin(self, key: SinkKey, seen: SinkRow) -> Any:
        transaction = self._wait(self._inner.begin(key, seen))
        return None if transaction is None else _Waiting(transaction, self._wait)


Check = Callable[[SinkUnderTest], None]
"""A rule of the contract: raises `AssertionError` if the sink breaks it."""


def _equal(actual: object, expected: object, rule: str) -> None:
    if actual != expected:
        raise AssertionError(f"{rule}\n  expected: {expected!r}\n  actual:   {actual!r}")


def _at(number: int | str, sub: int = 0) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(str(number), sub)


def _claimed(test: SinkUnderTest, row: SinkRow = SinkRow(fence=1), key: SinkKey = KEY) -> SinkRow:  # noqa: B008 - immutable
    test.sink.ensure_ready()
    _equal(test.sink.write(key, None, row), True, "a row is created in an empty sink")
    return row


def _begun(test: SinkUnderTest, seen: SinkRow, key: SinkKey = KEY) -> SinkTransaction:
    transaction = test.sink.begin(key, seen)
    if transaction is None:
        raise AssertionError(f"a transaction begins while the row is as seen\n  seen: {seen!r}")
    return transaction


def rows_are_read_back(test: SinkUnderTest) -> None:
    """A row is stored with all of its values, under all parts of its key."""
    test.sink.ensure_ready()
    _equal(test.sink.read(KEY), None, "an empty sink has no row")
    rows = [
        SinkRow(None, 1, ended=False),
        SinkRow(_at(7), 2, ended=False),
        SinkRow(_at(_LONGEST, 2**31), 2**60, ended=False),
        SinkRow(_at(7, -1), 2**60 + 1, ended=True),
        SinkRow(None, 2**60 + 2, ended=True),
    ]
    seen = None
    for row in rows:
        _equal(test.sink.write(KEY, seen, row), True, "a row that is as seen is changed")
        _equal(test.sink.read(KEY), row, "a row is read as it was written")
        seen = row
    for other in (
        KEY._replace(application="b"),
        KEY._replace(stream="b"),
        KEY._replace(lease_key="shardId-000000000001"),
    ):
        _equal(test.sink.read(other), None, "each part of the key counts")
        _equal(test.sink.write(other, None, SinkRow(fence=9)), True, "another key is another row")
    _equal(test.sink.read(KEY), rows[-1], "other rows leave this one as it is")


def it_may_be_made_ready_twice(test: SinkUnderTest) -> None:
    """Every worker makes the sink ready at its start; existing rows are kept."""
    row = _claimed(test)
    test.sink.ensure_ready()
    _equal(test.sink.read(KEY), row, "ensure_ready leaves rows as they are")


def writes_compare_the_whole_row(test: SinkUnderTest) -> None:
    """A write changes nothing if the row differs in any value from the row that was seen."""
    test.sink.ensure_ready()
    row = SinkRow(_at(7, 3), 5, ended=False)
    _equal(
        test.sink.write(KEY, row, replace(row, fence=6)), False, "a row that does not exist is not changed"
    )
    _equal(test.sink.read(KEY), None, "a failed write creates nothing")
    _equal(test.sink.write(KEY, None, row), True, "a row is created")
    for seen in (
        None,
        replace(row, position=None),
        replace(row, position=_at(8, 3)),
        replace(row, position=_at(7, 4)),
        replace(row, fence=4),
        replace(row, ended=True),
    ):
        _equal(
            test.sink.write(KEY, seen, SinkRow(fence=9)), False, f"a row that is not {seen!r} is not changed"
        )
        _equal(test.sink.read(KEY), row, "a failed write changes nothing")


def effects_and_position_commit_together(test: SinkUnderTest) -> None:
    """A commit stores the effects and the row."""
    row = _claimed(test)
    for number in (1, 2):
        transaction = _begun(test, row)
        test.write(transaction.handle, f"{number}a")
        test.write(transaction.handle, f"{number}b")
        row = replace(row, position=_at(number, 1))
        _equal(transaction.commit(row), True, "a commit succeeds while the row is as seen")
        _equal(test.sink.read(KEY), row, "a commit stores the row")
        expected = [f"{done}{part}" for done in range(1, number + 1) for part in "ab"]
        _equal(sorted(test.effects()), expected, "a commit stores the effects")


def a_rollback_leaves_nothing(test: SinkUnderTest) -> None:
    """A rollback changes neither the effects nor the row, and the next transaction starts from the same row."""
    row = _claimed(test)
    for _ in range(20):  # More than a pool has connections, so that each transaction must return its own.
        transaction = _begun(test, row)
        test.write(transaction.handle, "discarded")
        transaction.rollback()
    _equal(list(test.effects()), [], "a rollback discards the effects")
    _equal(test.sink.read(KEY), row, "a rollback leaves the row")


def an_empty_transaction_commits(test: SinkUnderTest) -> None:
    """A transaction without effects changes only the row: at the end of a shard, or for a batch without effects."""
    row = _claimed(test)
    ended = replace(row, ended=True)
    _equal(_begun(test, row).commit(ended), True, "a transaction without effects commits")
    _equal(test.sink.read(KEY), ended, "it stores the row")
    _equal(_begun(test, ended).commit(ended), True, "a row may stay as it is")


def a_later_claim_fences_transactions(test: SinkUnderTest) -> None:
    """A transaction that starts from an outdated row stores nothing, even if the position is the same."""
    row = _claimed(test)
    claimed = replace(row, fence=2)
    _equal(test.sink.write(KEY, row, claimed), True, "a later acquisition claims the row")
    transaction = test.sink.begin(KEY, row)
    if transaction is not None:  # A sink may notice this only at the commit.
        test.write(transaction.handle, "of the zombie")
        _equal(
            transaction.commit(replace(row, position=_at(5))),
            False,
            "a commit fails once the row was claimed",
        )
    _equal(list(test.effects()), [], "a commit that fails stores no effects")
    _equal(test.sink.read(KEY), claimed, "a commit that fails leaves the row")
    transaction = _begun(test, claimed)
    test.write(transaction.handle, "of the owner")
    _equal(transaction.commit(replace(claimed, position=_at(5))), True, "the later acquisition commits")
    _equal(list(test.effects()), ["of the owner"], "its effects are stored")


def one_of_many_claims_wins(test: SinkUnderTest) -> None:
    """If workers claim the same row at the same time, one succeeds."""
    test.sink.ensure_ready()
    seen: SinkRow | None = None
    for round_ in range(RACE_ROUNDS):
        rows = [SinkRow(fence=100 * round_ + racer + 1) for racer in range(RACERS)]
        won = [row for row, done in zip(rows, _race(test, seen, rows), strict=True) if done]
        _equal(len(won), 1, "one of several claims succeeds")
        _equal(test.sink.read(KEY), won[0], "the row is the winner's")
        seen = won[0]


def one_of_many_commits_wins(test: SinkUnderTest) -> None:
    """If workers commit from the same row at the same time, one stores its effects."""
    row = _claimed(test)
    outcomes: dict[int, bool] = {}

    def commit(racer: int) -> None:
        transaction = test.sink.begin(KEY, row)
        if transaction is None:
            return
        test.write(transaction.handle, f"of {racer}")
        outcomes[racer] = transaction.commit(replace(row, position=_at(racer + 1)))

    _run([lambda racer=racer: commit(racer) for racer in range(RACERS)])  # type: ignore[misc]
    won = [racer for racer, done in outcomes.items() if done]
    _equal(len(won), 1, "one of several commits succeeds")
    _equal(list(test.effects()), [f"of {won[0]}"], "only its effects are stored")
    _equal(test.sink.read(KEY), replace(row, position=_at(won[0] + 1)), "the row is the winner's")


def shards_do_not_disturb_each_other(test: SinkUnderTest) -> None:
    """Transactions of different shards all succeed, whether at the same time or one after the other."""
    rounds = 5
    keys = [KEY._replace(lease_key=f"shardId-00000000000{shard}") for shard in range(4)]
    for key in keys:
        _claimed(test, key=key)

    def work(key: SinkKey) -> None:
        row = SinkRow(fence=1)
        for number in range(rounds):
            transaction = _retried(lambda row=row: test.sink.begin(key, row))  # type: ignore[misc]
            test.write(transaction.handle, f"{key.lease_key} {number}")
            row = replace(row, position=_at(number))
            _equal(transaction.commit(row), True, "a commit succeeds beside those of other shards")

    _run([lambda key=key: work(key) for key in keys])  # type: ignore[misc]
    expected = sorted(f"{key.lease_key} {number}" for key in keys for number in range(rounds))
    _equal(sorted(test.effects()), expected, "the effects of all shards are stored once")


def ended_rows_can_be_deleted(test: SinkUnderTest) -> None:
    """A sink that deletes rows deletes only rows of finished shards. This check is skipped for other sinks; see `DeletesRows`."""
    if not isinstance(test.sink, DeletesRows):
        return
    sink: Any = test.sink
    other, open_key = KEY._replace(lease_key="shardId-000000000001"), KEY._replace(lease_key="a:b:1:shard-2")
    ended = SinkRow(_at(7), 2, ended=True)
    strangers = [KEY._replace(application="b"), KEY._replace(stream="b")]
    for key in (KEY, other, *strangers):
        _claimed(test, ended, key)
    row = _claimed(test, SinkRow(_at(7), 2), open_key)
    late = sink.begin(KEY, ended)
    expected = sorted(key.lease_key for key in (KEY, other, open_key))
    found = sorted(sink.lease_keys(KEY.application, KEY.stream))
    _equal(found, expected, "lease_keys returns the rows of an application and a stream")
    if late is not None:
        late.rollback()
    _equal(sink.delete_ended(open_key), False, "the row of an open shard is not deleted")
    _equal(sink.read(open_key), row, "the row of an open shard stays")
    _equal(sink.delete_ended(KEY), True, "the row of a finished shard is deleted")
    _equal(sink.read(KEY), None, "a deleted row is gone")
    _equal(sink.delete_ended(KEY), False, "a row is deleted once")
    _equal(sink.write(KEY, ended, replace(ended, fence=3)), False, "a deleted row is not changed")
    late = sink.begin(KEY, ended)
    if late is not None:  # A sink may notice this only at the commit.
        test.write(late.handle, "of the zombie")
        _equal(late.commit(replace(ended, position=_at(8))), False, "a commit fails once the row is deleted")
    _equal(list(test.effects()), [], "a commit that fails stores no effects")
    for key in (other, *strangers):
        _equal(sink.read(key), ended, "other rows stay")
    _equal(sink.write(KEY, None, SinkRow(fence=1)), True, "a deleted row can be created again")


def _race(test: SinkUnderTest, seen: SinkRow | None, rows: list[SinkRow]) -> list[bool]:
    outcomes = [False] * len(rows)

    def claim(index: int) -> None:
        outcomes[index] = _retried(lambda: test.sink.write(KEY, seen, rows[index]))

    _run([lambda index=index: claim(index) for index in range(len(rows))])  # type: ignore[misc]
    return outcomes


def _retried(call: Callable[[], Any]) -> Any:
    """Repeat a call while it raises an error that usually passes: a database may report a lock conflict."""
    while True:
        try:
            return call()
        except KinesisSdkError as error:
            if not error.retryable:
                raise


def _run(racers: list[Callable[[], None]]) -> None:
    barrier = threading.Barrier(len(racers))
    errors: list[BaseException] = []

    def run(racer: Callable[[], None]) -> None:
        try:
            barrier.wait(_DEADLINE)
            racer()
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the check
            errors.append(error)

    threads = [threading.Thread(target=run, args=(racer,), daemon=True) for racer in racers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_DEADLINE)
    if errors:
        raise errors[0]
    _equal(any(thread.is_alive() for thread in threads), False, "concurrent calls return")


SINK_CHECKS: tuple[Check, ...] = (
    rows_are_read_back,
    it_may_be_made_ready_twice,
    writes_compare_the_whole_row,
    effects_and_position_commit_together,
    a_rollback_leaves_nothing,
    an_empty_transaction_commits,
    a_later_claim_fences_transactions,
    one_of_many_claims_wins,
    one_of_many_commits_wins,
    shards_do_not_disturb_each_other,
    ended_rows_can_be_deleted,
)
"""All checks."""
