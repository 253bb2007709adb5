"""The file for records that are not stored, and the way back."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common import line_file
from kinesis_sdk.common.errors import ConfigError, SpoolError
from kinesis_sdk.common.headers import NO_HEADERS
from kinesis_sdk.producer import (
    FailedRecord,
    FileSpool,
    Producer,
    ProducerConfig,
    Put,
    SpooledRecord,
    read_spool,
)
from kinesis_sdk.producer.failures import spool as module
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.producer.stored import stored_headers
from tests.producer.support import LONG, beside

NOON = datetime(2026, 1, 2, 12, 0, 0, 250_000, tzinfo=timezone.utc)


class Noon:
    def monotonic(self) -> float:
        return 0.0

    def time(self) -> float:
        return NOON.timestamp()


def failed(
    data: bytes = b"x",
    key: str = "k",
    explicit: str | None = None,
    stream: str = "s",
    headers: Mapping[str, bytes] = NO_HEADERS,
) -> FailedRecord:
    return FailedRecord(stream, key, explicit, data, ValueError("no such stream"), None, headers)


LINE = b"""{"stream": "s", "partition_key": "k", "data": "", "cause": "", "time": "2026-01-02T12:00:00+00:00", "headers": %b}"""


def test_what_was_spooled_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "unsent.jsonl"
    spool = FileSpool(path, clock=Noon())
    assert not path.exists(), "nothing is opened before the first record"
    spool(failed(b"\x00\xff payload", "ключ", "7"))
    spool(failed(b""))
    spool(failed(b"", headers={"n": b"v", "bin": b"\xff"}))
    assert list(read_spool(path)) == [
        SpooledRecord("s", "ключ", "7", b"\x00\xff payload", "no such stream", NOON),
        SpooledRecord("s", "k", None, b"", "no such stream", NOON),
        SpooledRecord("s", "k", None, b"", "no such stream", NOON, None, {"n": b"v", "bin": b"\xff"}),
    ]
    first = json.loads(path.read_text("ascii").splitlines()[0])
    assert list(first) == ["stream", "partition_key", "explicit_hash_key", "data", "cause", "time"]
    assert first["time"] == "2026-01-02T12:00:00.250+00:00"
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0, "payloads are nobody else's business"


@given(st.binary(), st.text(min_size=1), st.none() | st.integers(0, 2**128 - 1).map(str), st.text())
def test_any_record_is_one_line(data: bytes, key: str, explicit: str | None, cause: str) -> None:
    record = FailedRecord("s", key, explicit, data, ValueError(cause))
    line = FileSpool("unused", clock=Noon())._encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert module._decode(line) == ("s", key, explicit, data, cause, NOON, None, {})


def test_repr_does_not_show_the_payload(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path / "f")
    spool(failed(b"secret", headers={"token": b"secret"}))
    (record,) = read_spool(tmp_path / "f")
    assert record.data == b"secret"
    assert "secret" not in repr(record)
    assert "f" in repr(spool)


@pytest.mark.parametrize("cut", [1, 10, -1, -2])
def test_half_a_line_is_skipped_and_does_not_spoil_the_next(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "f"
    spool = FileSpool(path)
    spool(failed(b"0"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:cut])
    with caplog.at_level(logging.WARNING):
        known = [record.data for record in read_spool(path)]
    # All but the newline is a whole record.
    assert known == ([b"0", b"0"] if cut == -1 else [b"0"])
    assert ("line 2" in caplog.text) == (cut != -1)
    spool(failed(b"1"))
    assert [record.data for record in read_spool(path)] == [*known, b"1"]


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"5",
        b"[]",
        b"null",
        b"{}",
        b'{"stream": "s", "partition_key": 5, "data": "", "cause": "", "time": "2026-01-02T12:00:00+00:00"}',
        b'{"stream": "s", "partition_key": "k", "data": "=", "cause": "", "time": "2026-01-02T12:00:00+00:00"}',
        b'{"stream": "s", "partition_key": "k", "data": "", "cause": "", "time": "noon"}',
        b'{"stream": "s", "partition_key": "k", "data": 5, "cause": "", "time": "2026-01-02T12:00:00+00:00"}',
        LINE % b'["n"]',
        LINE % b'{"n": 5}',
        LINE % b'{"n": "="}',
    ],
)
def test_what_is_no_record_is_skipped_with_its_line(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "f"
    FileSpool(path)(failed(b"0"))
    path.write_bytes(b"\n" + line + b"\n" + path.read_bytes())
    with caplog.at_level(logging.WARNING):
        assert [record.data for record in read_spool(path)] == [b"0"]
    assert "line 2 skipped" in caplog.text


def test_a_full_spool_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "f"
    spool = FileSpool(path, max_bytes=1_024)
    with pytest.raises(SpoolError, match="max_bytes=1,024"):
        for _ in range(100):
            spool(failed(b"0123456789"))
    size = path.stat().st_size
    assert 800 < size <= 1_024
    assert {record.data for record in read_spool(path)} == {b"0123456789"}
    path.rename(tmp_path / "g")
    spool(failed(b"again"))
    assert [record.data for record in read_spool(path)] == [b"again"]


def test_a_file_that_can_not_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpoolError) as caught:
        FileSpool(tmp_path / "nowhere" / "f")(failed())
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("step", ["write", "fsync"])
def test_a_full_disk_leaves_no_garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "f"
    spool = FileSpool(path)
    spool(failed(b"0"))
    write = os.write

    def half(descriptor: int, data: Any) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, half if step == "write" else refuse)
        with pytest.raises(SpoolError, match="No space left"):
            spool(failed(b"1"))
    assert [record.data for record in read_spool(path)] == [b"0"]
    spool(failed(b"2"))
    assert [record.data for record in read_spool(path)] == [b"0", b"2"]


def test_a_full_disk_after_a_torn_line_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    spool = FileSpool(path)
    spool(failed(b"0"))
    with path.open("ab") as file:
        file.write(b'{"stream": "cut off by a cra')
    before = path.read_bytes()
    write = os.write
    parts = iter([lambda data: data[:10]])

    def refuse_the_rest(descriptor: int, data: Any) -> int:
        for part in parts:
            return write(descriptor, part(data))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse_the_rest)
    with pytest.raises(SpoolError, match="No space left"):
        spool(failed(b"1"))
    assert path.read_bytes() == before


@pytest.mark.parametrize(("policy", "calls"), [("record", 2), ("never", 0)])
def test_the_sync_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, calls: int) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    spool = FileSpool(tmp_path / "f", fsync=policy)
    spool(failed())
    spool(failed())
    assert len(synced) == calls


@pytest.mark.parametrize(
    "settings", [{"max_bytes": 1_023}, {"max_bytes": True}, {"fsync": "sometimes"}, {"lock_timeout": 61}]
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FileSpool("f", **settings)


def test_a_file_that_is_renamed_between_opening_and_locking_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, taken = tmp_path / "f", tmp_path / "taken"
    spool = FileSpool(path)
    spool(failed(b"0"))
    try_lock = line_file._try_lock

    def rename_first(descriptor: int) -> bool:
        if not taken.exists():
            path.rename(taken)
        return try_lock(descriptor)

    monkeypatch.setattr(line_file, "_try_lock", rename_first)
    spool(failed(b"1"))
    assert [record.data for record in read_spool(taken)] == [b"0"]
    assert [record.data for record in read_spool(path)] == [b"1"]


def test_many_threads_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "f"
    # Without pauses: a thread that finds the file locked by the other spool tries again at once.
    spools = [FileSpool(path, fsync="never", lock_timeout=60, sleep=lambda _: None) for _ in range(2)]

    def work(thread: int) -> None:
        for number in range(50):
            spools[thread % 2](failed(b"%d-%d" % (thread, number) + b"x" * 5_000))

    with beside(*(partial(work, number) for number in range(4))):
        pass
    found = Counter(record.data.rstrip(b"x") for record in read_spool(path))
    assert found == Counter(b"%d-%d" % (thread, number) for thread in range(4) for number in range(50))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_wait_for_a_thread_that_it_has_not(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from kinesis_sdk.producer import FailedRecord, FileSpool\n"
        "spool = FileSpool(sys.argv[1])\n"
        "with spool._file._lock:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        spool(FailedRecord('s', 'k', None, b'x', ValueError('no')))\n"
        "        os._exit(0)\n"
        "    sys.exit(os.waitpid(child, 0)[1])\n"
    )
    path = tmp_path / "f"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=LONG).returncode == 0
    assert len(list(read_spool(path))) == 1


def test_a_producer_spools_what_it_can_not_store_and_it_can_be_put_again(tmp_path: Path) -> None:
    path = tmp_path / "unsent.jsonl"
    aws = FakeAws(throttle=False)
    config = ProducerConfig(record_max_buffered_time=0.005)
    with Producer(config, client=aws.client("kinesis"), on_record_failed=FileSpool(path)) as producer:
        producer.put_many(
            "orders", [("a", b"0"), Put("orders", "b", b"1", 5, headers={"n": "v", "bin": b"\xff"})]
        )
        assert producer.flush(LONG) == 0
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=2)
    with Producer(config, client=aws.client("kinesis")) as producer:
        for record in read_spool(path):
            assert "ResourceNotFoundException" in record.cause
            producer.put_again(record)
        assert producer.flush(LONG) == 0
        assert producer.stats().user_records_stored == 2
    assert stored_headers(aws) == {b"0": {}, b"1": {"n": b"v", "bin": b"\xff"}}


@pytest.mark.skipif(sys.platform == "win32", reason="looks at a POSIX lock")
def test_a_line_is_written_under_the_lock_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    path = tmp_path / "f"
    refused: list[bool] = []
    write_all = line_file._write_all

    def looked_at(descriptor: int, data: bytes) -> None:
        with path.open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(True)
        write_all(descriptor, data)

    monkeypatch.setattr(line_file, "_write_all", looked_at)
    spool = FileSpool(path)
    spool(failed(b"0"))
    spool(failed(b"1"))
    assert refused == [True, True]
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---------------------------------------------------------------------- what is at the path already

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and links")


def plant(kind: str, path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put something at the path that must not be used; return what the error has to say."""
    if kind == "link":
        path.symlink_to(elsewhere)
        return "is a symbolic link"
    if kind == "dangling link":
        elsewhere.unlink()
        path.symlink_to(elsewhere)
        return "is a symbolic link"
    if kind == "hard link":
        path.hardlink_to(elsewhere)
        return "has 2 hard links"
    if kind == "fifo":
        os.mkfifo(path, 0o600)
        return "not a regular file"
    path.touch(0o600)
    if kind == "mode":
        path.chmod(0o640)
        return "mode is 0640.*expected 0600"
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    return f"belongs to user id {user}, and this process runs as {user + 1}"


@posix
@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "fifo", "mode", "owner"])
def test_a_file_that_was_planted_at_the_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, elsewhere = tmp_path / "unsent.jsonl", tmp_path / "elsewhere"
    elsewhere.touch(0o600)
    problem = plant(kind, path, elsewhere, monkeypatch)
    opened: list[int] = []
    closed: list[int] = []
    opens, closes = os.open, os.close
    monkeypatch.setattr(os, "open", lambda *args: opened.append(opens(*args)) or opened[-1])
    monkeypatch.setattr(os, "close", lambda descriptor: closed.append(descriptor) or closes(descriptor))
    with pytest.raises(SpoolError, match=f"{path} .*{problem}"):
        FileSpool(path)(failed(b"secret"))
    assert not elsewhere.exists() or elsewhere.read_bytes() == b"", "nothing went elsewhere"
    if kind in ("mode", "owner"):
        assert path.read_bytes() == b""
    assert closed == opened


@posix
def test_the_file_is_private_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spool = FileSpool(tmp_path / "f")
        spool(failed(b"0"))
        spool(failed(b"1"))
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    assert len(list(read_spool(tmp_path / "f"))) == 2


# ---------------------------------------------------------------------- a lock that another process holds


@posix
def test_a_lock_that_another_process_keeps_is_waited_for_once_and_not_for_ever(tmp_path: Path) -> None:
    import fcntl

    path, clock = tmp_path / "f", VirtualClock()
    spool = FileSpool(path, lock_timeout=3.0, clock=clock, sleep=clock.advance)
    spool(failed(b"0"))
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_SH)  # to be allowed to read is enough
        with pytest.raises(SpoolError, match=f"{path}: .* for 3 s"):
            spool(failed(b"1"))
        assert clock.monotonic() == pytest.approx(3.0)
        for _ in range(100):
            with pytest.raises(SpoolError, match=r"the file$"):
                spool(failed(b"2"))
        assert clock.monotonic() == pytest.approx(3.0), "a hundred failed records do not hold the producer up"
    spool(failed(b"3"))
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(SpoolError, match="for 3 s"):
            spool(failed(b"4"))
    assert clock.monotonic() == pytest.approx(6.0), "once it was free, it is waited for again"
    assert [record.data for record in read_spool(path)] == [b"0", b"3"]


@posix
def test_a_lock_that_is_released_in_time_costs_no_record(tmp_path: Path) -> None:
    import fcntl

    path, clock = tmp_path / "f", VirtualClock()
    holder = path.open("wb")
    path.chmod(0o600)
    fcntl.flock(holder, fcntl.LOCK_EX)

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if clock.monotonic() > 1.0:
            holder.close()

    FileSpool(path, clock=clock, sleep=sleep)(failed(b"0"))
    assert 1.0 < clock.monotonic() < 1.1
    assert [record.data for record in read_spool(path)] == [b"0"]


@posix
def test_a_child_that_is_forked_while_a_record_is_written_does_not_keep_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock = tmp_path / "f", VirtualClock()
    write_all, copies = line_file._write_all, []

    def fork_meanwhile(descriptor: int, data: bytes) -> None:
        copies.append(os.dup(descriptor))  # as a child has one
        write_all(descriptor, data)

    monkeypatch.setattr(line_file, "_write_all", fork_meanwhile)
    spool = FileSpool(path, clock=clock, sleep=clock.advance)
    spool(failed(b"0"))
    spool(failed(b"1"))
    for copy in copies:
        os.close(copy)
    assert clock.monotonic() == 0.0
    assert len(list(read_spool(path))) == 2
