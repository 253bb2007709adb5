"""A dead letter from a poison record, as a record again, and as a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinesis_sdk.common.dead_letters import History
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.errors import ConfigError, ConsumerError, DeadLetterError
from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.dead_letters import DeadLetters, FileDeadLetters, Selection, State
from kinesis_sdk.dead_letters.letter import APPLICATION, DeadLetter
from kinesis_sdk.dead_letters.store import MAX_GROUPS, Grouped
from kinesis_sdk.testing import VirtualClock
from tests.dead_letters.letters import SHARD, letter


def poison(record: UserRecord, error: BaseException) -> PoisonRecord:
    return PoisonRecord(record=record, error=error, attempts=3, shard_id=SHARD, stream=StreamId("orders"))


def test_the_hook_keeps_a_record_that_can_be_delivered_again(tmp_path: Path) -> None:
    clock = VirtualClock()
    hook = DeadLetters(f"file:{tmp_path}/letters.jsonl", application="billing", clock=clock)
    record = UserRecord(b"secret", "k", "77", None, None, 2, "5", True, {"tenant": b"\xff"})
    hook(poison(record, KeyError("secret")))
    hook.close()
    (kept,) = FileDeadLetters(tmp_path / "letters.jsonl").letters(payload=True)
    assert (kept.application, kept.history.error, kept.state) == ("billing", "KeyError", State.OPEN)
    assert kept.set_aside == round(clock.time() * 1000)
    again = kept.record()
    assert again.id == f"orders/{SHARD}/77/2"
    assert (again.data, again.partition_key, again.explicit_hash_key) == (b"secret", "k", "5")
    assert again.headers["tenant"] == b"\xff"
    assert History.of(again.headers) == kept.history
    assert "secret" not in repr(kept)


def test_a_record_of_a_lambda_function_is_kept_with_its_place(tmp_path: Path) -> None:
    hook = DeadLetters(f"file:{tmp_path}/letters.jsonl")
    record = letter(1).record()
    hook.take(record._replace(headers={}), KeyError("secret"))
    (kept,) = FileDeadLetters(tmp_path / "letters.jsonl").letters(payload=True)
    assert kept.record().id == record.id
    assert (kept.history.error, kept.history.attempt) == ("KeyError", 1)
    with pytest.raises(ConsumerError):
        hook.take(UserRecord(b"", "k", "1"), KeyError())


def test_a_letter_that_fails_again_keeps_its_identity_and_its_first_failure() -> None:
    first = letter(1)
    again = first.failed_again(TimeoutError(), 1_800_000_000_000)
    assert again.id == first.id
    assert (again.history.error, again.history.attempt) == ("TimeoutError", 2)
    assert again.history.first_failed == first.history.first_failed
    assert again.record().headers["tenant"] == b"a\xff"


@pytest.mark.parametrize("own", [{f"header-{n}": b"" for n in range(64)}, {"big": b"x" * 8_000}])
def test_headers_of_a_copy_fit_with_the_name_of_the_application(own: dict[str, bytes]) -> None:
    one = letter(1, headers=own, application="\U0001f600" * 255)
    headers = one.copy_headers()
    assert encode_headers(headers)
    left_out = int(headers.get("retry-left-out", 0))
    assert left_out
    assert len([name for name in headers if name in own]) + left_out == len(own)


def test_a_copy_in_a_stream_is_a_letter_only_with_its_origin() -> None:
    record = letter(1).record()
    named = record._replace(headers={**record.headers, APPLICATION: b"billing" + b"\xff" * 2000})
    copy = DeadLetter.of_copy(named, 5)
    assert copy is not None
    assert copy.headers == {"tenant": b"a\xff"}
    assert len(copy.application) == 255
    assert DeadLetter.of_copy(UserRecord(b"x", "k", "1"), 5) is None


def test_a_payload_that_was_not_read_is_said() -> None:
    with pytest.raises(DeadLetterError, match="was not read"):
        letter(1).without_payload().record()


def test_a_selection_needs_every_condition() -> None:
    one = letter(1, error="KeyError", set_aside=1_000)
    assert Selection().accepts(one)
    assert not Selection().accepts(letter(1, state=State.REPLAYED))
    fits = {
        "ids": frozenset([one.id]),
        "errors": frozenset(["KeyError"]),
        "shards": frozenset([SHARD]),
        "keys": frozenset(["key-1"]),
        "applications": frozenset(["billing"]),
        "since": 1_000,
        "until": 1_001,
    }
    assert Selection(**fits).accepts(one)
    for name, value in fits.items():
        other = {"since": 1_001, "until": 1_000}.get(name, frozenset(["other"]))
        assert not Selection(**{**fits, name: other}).accepts(one), (name, value)


def test_groups_are_counted_and_bounded() -> None:
    letters = [letter(n, error="KeyError") for n in range(3)]
    letters += [letter(5, state=State.REPLAYING), letter(4)]
    found = Grouped.of(letters)
    first, second = found.groups
    assert (first.error, first.letters, first.oldest, first.newest) == (
        "KeyError",
        3,
        letters[0].set_aside,
        letters[2].set_aside,
    )
    assert (second.replaying, second.example, second.oldest) == (1, letter(5).id, letter(4).set_aside)
    many = Grouped.of(letter(0, error=f"E{n}") for n in range(MAX_GROUPS + 5))
    assert (len(many.groups), many.ungrouped, many.letters) == (MAX_GROUPS, 5, MAX_GROUPS + 5)


@pytest.mark.parametrize(("place", "application"), [("letters.db", ""), (5, ""), ("file:x", "a" * 256)])
def test_a_wrong_setting_of_the_hook_is_refused_at_once(place: object, application: str) -> None:
    with pytest.raises(ConfigError):
        DeadLetters(place, application=application)  # type: ignore[arg-type]
