from __future__ import annotations

import gzip
import io
import json
import threading
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.records import read_page, record_to_dict
from kinesis_sdk.admin.resharding import Resharding
from kinesis_sdk.admin.streams import Streams
from kinesis_sdk.admin.transfer import files as files_module
from kinesis_sdk.admin.transfer.acknowledged import AckTracker
from kinesis_sdk.admin.transfer.copy import CopyResult, copy_stream
from kinesis_sdk.admin.transfer.files import FileRecord, RecordFile, open_files
from kinesis_sdk.admin.transfer.put import bulk_config, put_files
from kinesis_sdk.admin.transfer.run import Transfer, TransferProgress, TransferResult
from kinesis_sdk.admin.transfer.state import StateFile
from kinesis_sdk.cli.transfer_report import result_text
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.errors import AdminError, ConfigError, ResourceNotFoundError, SpoolError
from kinesis_sdk.common.position import Ended, Position, TrimHorizon
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.failures.hooks import FailedRecord
from kinesis_sdk.producer.failures.spool import FileSpool, read_spool
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock

LONG = 30.0
"""Seconds after which a thread that does not come is an error."""

# -- accounting -------------------------------------------------------------------------------------------------


@given(st.data())
def test_the_account_is_exact_over_any_number_of_runs(data: st.DataObject) -> None:
    """Random results in random order, runs that end anywhere: what is done is never asked for again, nothing else is."""
    total = data.draw(st.integers(1, 30))
    done: set[int] = set()
    state: tuple[Any, Any] = (None, [])
    for _ in range(data.draw(st.integers(1, 4))):
        tracker: AckTracker[int] = AckTracker(*state)
        assert {number for number in range(1, total + 1) if tracker.was_done(number)} == done
        tickets = []
        for number in range(1, data.draw(st.integers(0, total)) + 1):
            ticket = tracker.begin(number)
            if tracker.was_done(number):
                tracker.finish(ticket)
            else:
                tickets.append(ticket)
        for ticket in data.draw(st.permutations(tickets)):
            if data.draw(st.booleans()):
                tracker.finish(ticket)
                done.add(ticket.position)
        state = json.loads(json.dumps(tracker.state()))
        state = (state[0], [tuple(pair) for pair in state[1]])
    last: AckTracker[int] = AckTracker(*state)
    assert {number for number in range(1, total + 1) if last.was_done(number)} == done
    through, beyond = state
    assert set(range(1, (through or 0) + 1)) <= done
    assert len(beyond) <= len(done)


def test_the_account_of_a_long_run_is_small() -> None:
    tracker: AckTracker[int] = AckTracker()
    for number in range(10_000):
        ticket = tracker.begin(number)
        if number != 17:
            tracker.finish(ticket)
    assert tracker.state() == (16, [(18, 9999)])


# -- files ------------------------------------------------------------------------------------------------------


def records(path: Path, **options: Any) -> list[FileRecord]:
    return list(RecordFile(str(path), **options).records())


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\r\n\ntwo \xff")
    assert [(one.number, one.data) for one in records(path)] == [(1, b"one"), (2, b""), (3, b"two \xff")]


def test_ndjson_keeps_lines_as_they_are_and_takes_keys_from_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson.gz"
    lines = [
        b'{"id": 7, "at": {"city": "K\xc3\xb6ln"},  "h": "9"}',
        b'{"id": "x", "at": {"city": true}, "h": 12}',
        b"",
        b"{broken",
        b'{"id": 1}',
        b'{"at": {"city": ["a"]}}',
        b'{"at": {"city": "a"}, "h": "-1"}',
        b'{"at": {"city": "a"}, "h": 1.5}',
    ]
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    found = records(path, key="at.city", hash_key="h")
    assert [(one.number, one.partition_key, one.explicit_hash_key) for one in found[:2]] == [
        (1, "Köln", "9"),
        (2, "true", "12"),
    ]
    assert found[0].data == lines[0]
    assert [one.problem for one in found[2:4]] == ["not JSON (JSONDecodeError)", "no field 'at.city'"]
    assert "is list, not a text or a number" in str(found[4].problem)
    assert all("explicit_hash_key" in str(one.problem) for one in found[5:])
    assert "broken" not in repr(found[2]), "no payload in a log line"


@pytest.mark.parametrize("name", ["a.log.gz", "a.csv.gz"])
def test_a_compressed_file_is_read_up_to_its_damage(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    whole = gzip.compress(b"id\n" + b"".join(b"%032x\n" % hash((7, number)) for number in range(9_000)))
    before = {"a.log.gz": 9_001, "a.csv.gz": 9_000}[name]
    for content in (whole[: len(whole) // 2], whole[:-8] + b"\0" * 8, b"not gzip"):
        path.write_bytes(content)
        *read, last = records(path)
        assert last.number == len(read) + 1
        assert len(read) <= before
        assert "cut off or damaged" in str(last.problem)
        assert not any(record.problem for record in read)
    path.write_bytes(whole[: len(whole) // 2])
    assert len(records(path)) > 2_000


def test_csv_rows_become_json(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\ufeffid,text\n1,"a, b\nc"\n2\n\n3,ü\n', encoding="utf-8")
    found = records(path, key="id")
    assert [(one.number, one.partition_key) for one in found] == [(1, "1"), (2, None), (3, "3")]
    assert json.loads(found[0].data) == {"id": "1", "text": "a, b\nc"}
    assert found[1].problem == "1 columns instead of 2"
    with pytest.raises(ConfigError, match=r"key='nope'.*id, text"):
        records(path, key="nope")
    path.write_bytes(b"a,b\n\xff,1\n")
    with pytest.raises(ConfigError, match="CSV in UTF-8"):
        records(path)


def test_parquet_rows_become_json(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    moment = datetime(2026, 11, 22, tzinfo=timezone.utc)
    table = pa.table({"id": [1, 2], "at": [moment, None], "raw": [b"\xff", b""]})
    parquet.write_table(table, path)
    found = records(path, key="id")
    assert [one.partition_key for one in found] == ["1", "2"]
    assert json.loads(found[0].data) == {"id": 1, "at": "2026-11-22T00:00:00+00:00", "raw": "/w=="}
    (tmp_path / "b.parquet").write_bytes(b"not parquet")
    with pytest.raises(ConfigError, match="a Parquet file"):
        records(tmp_path / "b.parquet")


def test_options_of_files_that_make_no_sense_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")
    with pytest.raises(ConfigError, match="key='id'"):
        RecordFile(str(path), key="id")
    with pytest.raises(ConfigError, match=r"file='.*nowhere'"):
        RecordFile(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="one of auto, lines"):
        RecordFile(str(path), file_format="xml")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="each file once"):
        open_files([str(path), str(tmp_path / "." / "a.txt")])
    with pytest.raises(ConfigError, match="standard input"):
        RecordFile("-", file_format="parquet")


# -- put --------------------------------------------------------------------------------------------------------


class Account:
    """A fake account with a stream, in real time because the producer has threads."""

    def __init__(self, shards: int = 2) -> None:
        self.aws = FakeAws(throttle=False)
        self.connection = Connection(clients={"kinesis": self.aws.client("kinesis")}, region="here")
        self.streams = Streams(self.connection)
        self.streams.create("s", shards=shards)

    def stored(self, stream: str = "s") -> list[tuple[str, bytes, str | None]]:
        found: list[tuple[str, bytes, str | None]] = []
        for shard in self.streams.shards(stream):
            position: Position = TrimHorizon()
            while not isinstance(position, Ended):
                page = read_page(self.connection, stream, shard.shard_id, position, limit=10_000)
                found += [(one.partition_key, one.data, one.explicit_hash_key) for one in page.records]
                position = page.next_position
                if page.at_tip:
                    break
        return found

    def put(self, path: Path, **options: Any) -> TransferResult:
        config = options.pop("config", bulk_config())
        keys = {name: options.pop(name) for name in ("key", "hash_key", "file_format") if name in options}
        return put_files(self.connection, "s", [RecordFile(str(path), **keys)], config=config, **options)


@pytest.fixture
def account() -> Account:
    return Account()


def ndjson(path: Path, count: int) -> Path:
    path.write_text("".join(f'{{"id": {number}}}\n' for number in range(count)))
    return path


def test_every_record_of_a_file_is_stored(account: Account, tmp_path: Path) -> None:
    seen: list[TransferProgress] = []
    result = account.put(ndjson(tmp_path / "a.ndjson", 500), key="id", on_progress=seen.append)
    assert (result.acknowledged, result.read, result.is_good) == (500, 500, True)
    assert sorted(int(key) for key, _, _ in account.stored()) == list(range(500))
    assert seen[-1].fraction == 1.0


def test_random_keys_spread_the_records(account: Account, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x\n" * 100)
    account.put(path)
    assert len({key for key, _, _ in account.stored()}) == 100


def test_explicit_hash_keys_place_the_records(account: Account, tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    last = (1 << 128) - 1
    path.write_text(f'{{"h": "5"}}\n{{"h": {last}}}\n{{"h": "6"}}\n')
    account.put(path, hash_key="h")
    counts = [
        len(read_page(account.connection, "s", one.shard_id, TrimHorizon()).records)
        for one in account.streams.shards("s")
    ]
    assert counts == [2, 1]


def test_bad_records_are_reported_and_the_others_put(account: Account, tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text('{"id": 1}\nbroken\n{"id": 3}\n{"id": ""}\n')
    result = account.put(path, key="id")
    assert (result.acknowledged, result.rejected, result.is_good) == (2, 2, False)
    assert result.problems[0].endswith("a.ndjson, record 2: not JSON (JSONDecodeError)")
    assert "partition_key" in result.problems[1]


def test_standard_input(account: Account) -> None:
    files = open_files([], stdin=io.BytesIO(b"a\nb\n"))
    result = put_files(account.connection, "s", files)
    assert result.acknowledged == 2
    assert {data for _, data, _ in account.stored()} == {b"a", b"b"}


def test_a_stream_that_is_not_there_fails_before_anything_is_read(account: Account, tmp_path: Path) -> None:
    path = ndjson(tmp_path / "a.ndjson", 1)
    with pytest.raises(ResourceNotFoundError):
        put_files(account.connection, "nowhere", [RecordFile(str(path))])


class Interrupting(RecordFile):
    """A file during whose reading Ctrl-C is pressed."""

    stop_after = 10

    def records(self) -> Any:
        for record in super().records():
            if record.number > self.stop_after:
                raise KeyboardInterrupt
            yield record


def test_ctrl_c_flushes_and_the_next_run_goes_on(account: Account, tmp_path: Path) -> None:
    path, state = ndjson(tmp_path / "a.ndjson", 50), StateFile(tmp_path / "state")
    first = put_files(account.connection, "s", [Interrupting(str(path), key="id")], state=state)
    assert (first.interrupted, first.acknowledged, first.reached) == (True, 10, {str(path): "10"})
    assert not first.is_good
    second = account.put(path, key="id", state=state)
    assert (second.skipped, second.acknowledged, second.is_good) == (10, 40, True)
    third = account.put(path, key="id", state=state)
    assert (third.skipped, third.acknowledged) == (50, 0)
    with path.open("a") as file:
        file.write('{"id": 50}\n')
    assert account.put(path, key="id", state=state).acknowledged == 1, "a file that has grown"
    assert sorted(int(key) for key, _, _ in account.stored()) == list(range(51))


def test_only_records_that_failed_are_put_again(account: Account, tmp_path: Path) -> None:
    path, state = ndjson(tmp_path / "a.ndjson", 60), StateFile(tmp_path / "state")
    # Each record is a Kinesis record, and some of them are rejected for good.
    config = ProducerConfig(aggregation_enabled=False, fail_if_throttled=True)
    account.aws.faults.add(Fault(kind="partial", operation="PutRecords", probability=0.4, count=20))
    first = account.put(path, key="id", state=state, config=config)
    assert first.failed == 20
    assert first.acknowledged == 40
    assert first.problems
    assert '{"id"' not in " ".join(first.problems), "no payloads"
    second = account.put(path, key="id", state=state, config=config)
    assert (second.skipped, second.acknowledged, second.failed) == (40, 20, 0)
    assert sorted(int(key) for key, _, _ in account.stored()) == list(range(60))


def test_a_stream_that_takes_nothing_ends_the_run(account: Account, tmp_path: Path) -> None:
    path = ndjson(tmp_path / "a.ndjson", 8_000)
    account.aws.faults.add(Fault(kind="throttle", code="AccessDeniedException", operation="PutRecords"))
    # With a small buffer, the reader is never further ahead of the failures than this, however fast it is.
    config = replace(bulk_config(aggregate=False), max_buffered_records=1_000)
    result = account.put(path, config=config)
    assert result.interrupted
    assert result.failed >= 1000
    assert result.read < 8_000
    assert (
        any("failed, one after the other" in word for word in result.problems) or len(result.problems) == 10
    )


def test_failed_records_go_to_a_spool_which_can_be_put(account: Account, tmp_path: Path) -> None:
    path = ndjson(tmp_path / "a.ndjson", 20)
    config = ProducerConfig(aggregation_enabled=False, fail_if_throttled=True)
    account.aws.faults.add(Fault(kind="partial", operation="PutRecords", count=5))
    spool = FileSpool(tmp_path / "failed.spool", fsync="never")
    assert account.put(path, key="id", config=config, on_record_failed=spool).failed == 5
    assert len(list(read_spool(spool.path))) == 5
    assert account.put(Path(spool.path)).acknowledged == 5
    assert sorted(int(key) for key, _, _ in account.stored()) == list(range(20))
    with pytest.raises(ConfigError, match="spool"):
        account.put(path, state=StateFile(tmp_path / "state"), on_record_failed=spool)


def test_the_result_says_which_failed_records_are_in_no_spool(
    account: Account, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full in the middle of an outage."""
    path = ndjson(tmp_path / "a.ndjson", 20)
    config = ProducerConfig(aggregation_enabled=False, fail_if_throttled=True)
    account.aws.faults.add(Fault(kind="partial", operation="PutRecords", count=7))
    room = 3

    def full(_record: object) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise SpoolError("No space left on device")

    result = account.put(path, key="id", config=config, on_record_failed=full)
    assert (result.failed, result.spooled, result.not_spooled) == (7, 3, 4)
    assert result.spool_problem == "No space left on device"
    assert "7 failed, 3 of these in the spool, 4 NOT in the spool" in result_text(result)
    assert len([record for record in caplog.records if "hook raised" in record.getMessage()]) == 1
    assert account.put(path).spooled is None


def test_a_state_file_of_something_else_is_rejected(account: Account, tmp_path: Path) -> None:
    path, state = ndjson(tmp_path / "a.ndjson", 3), StateFile(tmp_path / "state")
    account.put(path, key="id", state=state)
    path.write_text('{"id": 9}\n' * 9)
    with pytest.raises(ConfigError, match="the beginning of the file has changed"):
        account.put(path, key="id", state=state)
    account.streams.create("other", shards=1)
    with pytest.raises(ConfigError, match=r"same target: it belongs to .*stream/s of"):
        put_files(account.connection, "other", [RecordFile(str(path))], state=state)
    state.path.write_text("[]")
    with pytest.raises(ConfigError, match="a state file of this command"):
        account.put(path, state=state)
    with state.locked(), pytest.raises(ConfigError, match="no other process"):
        account.put(path, state=StateFile(state.path))


def test_the_state_file_is_private_and_replaced_as_a_whole(account: Account, tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state")
    account.put(ndjson(tmp_path / "a.ndjson", 3), key="id", state=state)
    assert state.path.stat().st_mode & 0o077 == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.ndjson", "state"]


def test_a_state_file_that_cannot_be_written_ends_the_run(account: Account, tmp_path: Path) -> None:
    path = ndjson(tmp_path / "a.ndjson", 3)
    with pytest.raises(AdminError, match="cannot be written"):
        account.put(path, state=Unwritable(tmp_path / "state"))


class Unwritable(StateFile):
    """A state file on a disk that is full."""

    def save(self, task: Any, progress: Any) -> None:
        raise OSError("No space left on device")


def test_a_line_without_end_is_one_invalid_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_LONGEST_LINE", 10)
    path = tmp_path / "a.txt"
    path.write_bytes(b"123456789\n" + b"x" * 35 + b"\nlast\n" + b"y" * 10)
    assert [(one.data, one.problem is None) for one in records(path)] == [
        (b"123456789", True),
        (b"", False),
        (b"last", True),
        (b"", False),
    ]


def test_the_rate_is_kept(account: Account, tmp_path: Path) -> None:
    waits: list[float] = []

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def time(self) -> float:
            return self.now

    clock = Clock()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds

    result = account.put(ndjson(tmp_path / "a.ndjson", 100), rate=20.0, clock=clock, sleep=sleep)
    assert result.acknowledged == 100
    assert sum(waits) == pytest.approx(5.0, abs=0.2)
    with pytest.raises(ConfigError, match="rate=0 "):
        account.put(tmp_path / "a.ndjson", rate=0)


# -- copy -------------------------------------------------------------------------------------------------------


def fill(account: Account, count: int, *, aggregate: bool = True) -> None:
    with Producer(
        bulk_config(ordered=True, aggregate=aggregate), client=account.connection.kinesis
    ) as producer:
        for number in range(count):
            producer.put("s", f"k{number % 10}", str(number).encode())


def copy(account: Account, **options: Any) -> CopyResult:
    options.setdefault("threads", 0)
    options = {**without_waiting(account), **options}
    return copy_stream(account.connection, "s", account.connection, "t", **options)


def without_waiting(account: Account) -> dict[str, Any]:
    """Return a clock that begins now and moves when the reader waits."""
    clock = VirtualClock(account.aws.clock.time())
    return {"clock": clock, "sleep": clock.advance}


def per_key(stored: list[tuple[str, bytes, str | None]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key, data, _ in stored:
        found.setdefault(key, []).append(int(data))
    return found


def test_a_copy_keeps_keys_hash_keys_and_the_order_of_each_key(account: Account) -> None:
    fill(account, 200)
    Resharding(account.streams).split("s", "0")
    placed = Aggregate(max_size=1000, max_count=10)
    assert placed.try_append("placed", "77", b"1000", (77).to_bytes(16, "big"))
    assert placed.try_append("placed", "78", b"1001", (78).to_bytes(16, "big"))
    account.connection.kinesis.put_record(
        StreamName="s", PartitionKey="a", Data=placed.encode(), ExplicitHashKey="77"
    )
    account.streams.create("t", shards=3)
    result = copy(account)
    assert (result.transfer.acknowledged, result.transfer.is_good, result.hidden_hash_keys) == (202, True, 0)
    target = account.stored("t")
    assert per_key(target) == {
        **{f"k{key}": list(range(key, 200, 10)) for key in range(10)},
        "placed": [1000, 1001],
    }
    first = min(account.streams.shards("t"), key=lambda one: one.hash_key_range)
    page = read_page(account.connection, "t", first.shard_id, TrimHorizon(), limit=10_000)
    assert {b"1000", b"1001"} <= {one.data for one in page.records}, "77 and 78 belong to the first shard"


def test_headers_go_with_their_records_from_a_spool_into_a_copy(account: Account, tmp_path: Path) -> None:
    spool = FileSpool(tmp_path / "failed.spool", fsync="never")
    for data, headers in ((b"0", {"n": b"v", "bin": b"\xff"}), (b"1", {})):
        spool(FailedRecord("s", "k", None, data, ValueError("no"), None, headers))
    assert account.put(Path(spool.path)).acknowledged == 2
    account.streams.create("t", shards=1)
    assert copy(account).transfer.acknowledged == 2
    (shard,) = account.streams.shards("t")
    page = read_page(account.connection, "t", shard.shard_id, TrimHorizon(), limit=10)
    found = {one.data: record_to_dict(shard.shard_id, one)["headers"] for one in page.records}
    assert found == {b"0": {"n": "v", "bin;b64": "/w=="}, b"1": {}}


def test_hash_keys_that_kinesis_does_not_give_back_are_counted(account: Account) -> None:
    account.streams.create("t", shards=1)
    # MD5 of "a" begins with 0c, so it belongs to the first half.
    account.connection.kinesis.put_record(
        StreamName="s", PartitionKey="a", Data=b"1", ExplicitHashKey=str((1 << 128) - 1)
    )
    account.connection.kinesis.put_record(StreamName="s", PartitionKey="a", Data=b"2")
    assert copy(account).hidden_hash_keys == 1


def test_a_copy_that_was_stopped_continues_with_the_same_window(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(account, 300)
    account.streams.create("t", shards=1)
    state = StateFile(tmp_path / "state")
    said: list[str] = []
    acknowledged = threading.Event()
    finish = Transfer._finished

    def finished(run: Transfer, *result: Any) -> None:
        finish(run, *result)
        acknowledged.set()

    monkeypatch.setattr(Transfer, "_finished", finished)

    stopped: list[TransferProgress] = []

    def stop(progress: TransferProgress) -> None:
        # The first report comes after about a third of the records. Their results come from the producer's threads.
        if not stopped:
            stopped.append(progress)
            assert acknowledged.wait(LONG)
            raise KeyboardInterrupt

    first = copy(account, state=state, on_progress=stop, rate=600.0)
    assert first.transfer.interrupted
    assert 0 < first.transfer.acknowledged < 300
    account.connection.kinesis.put_record(StreamName="s", PartitionKey="late", Data=b"999")
    second = copy(account, state=state, notice=said.append)
    assert second.until == first.until
    assert said[0].startswith("continuing the copy from TRIM_HORIZON")
    assert second.transfer.acknowledged == 300 - first.transfer.acknowledged
    assert sorted(int(data) for _, data, _ in account.stored("t")) == list(range(300))


def test_a_copy_into_itself_is_rejected(account: Account) -> None:
    with pytest.raises(ConfigError, match="never end"):
        copy_stream(account.connection, "s", account.connection, "s", follow=True)
    fill(account, 10)
    before = len(account.stored())
    summary = account.connection.kinesis.describe_stream_summary(StreamName="s")
    arn = summary["StreamDescriptionSummary"]["StreamARN"]
    named = Connection(region="us-east-1", clients={"kinesis": account.connection.kinesis})
    for source, target in (("s", "s"), ("s", arn), (arn, "s")):
        with pytest.raises(ConfigError, match="double its records") as rejected:
            copy_stream(account.connection, source, named, target, threads=0)
        assert f"target={target!r}" in str(rejected.value)
        assert f"source={source!r}" in str(rejected.value)
    assert len(account.stored()) == before


def test_records_without_a_partition_key_stay_without_one(account: Account, tmp_path: Path) -> None:
    for name in ("t", "u"):
        account.connection.kinesis.create_stream(
            StreamName=name, StreamModeDetails={"StreamMode": "ON_DEMAND"}, RecordDistributionStrategy="AUTO"
        )
    spool = tmp_path / "a.spool"
    spool.write_text(
        '{"stream": "t", "partition_key": null, "explicit_hash_key": null, "data": "eA==", "cause": "", '
        '"time": "2026-11-22T12:00:00+00:00"}\n'
    )
    put_files(account.connection, "t", [RecordFile(str(spool))])
    rejected = copy_stream(
        account.connection, "t", account.connection, "u", threads=0, **without_waiting(account)
    )
    assert "per_shard" in rejected.transfer.problems[0], "there is no order to keep without keys"
    config = bulk_config()
    result = copy_stream(
        account.connection, "t", account.connection, "u", threads=0, config=config, **without_waiting(account)
    )
    assert result.transfer.is_good
    assert [(key, data) for key, data, _ in account.stored("u")] == [("", b"x")]
