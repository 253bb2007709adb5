"""The sink of objects, in a folder and in a small S3: the contract, fleets that crash between any two calls, and the limits of S3."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from botocore.exceptions import ReadTimeoutError

from kinesis_sdk.common.errors import ConfigError, SinkError, TransientSinkError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.sinks.objects import FolderStore, ObjectSink, S3Store
from kinesis_sdk.consumer.sinks.sink import SinkRow
from kinesis_sdk.testing.contracts.sinks import KEY, SINK_CHECKS, SinkUnderTest
from tests import fuzz
from tests.consumer.sinks.books import Books, CrashError
from tests.consumer.sinks.bucket import Bucket, error
from tests.consumer.sinks.house import House


def lines(objects):
    """Return the effects in all objects that are not the sink's own."""
    return [
        line.decode()
        for name, content in sorted(objects.items())
        if "/_positions/" not in f"/{name}" and "/_staged/" not in f"/{name}"
        for line in content.splitlines()
    ]


def in_folder(path):
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.suffix != ".lock"
    }


@pytest.fixture(params=["folder", "s3"])
def place(request, tmp_path):
    """Return a function that makes a sink of one place, and one that reads its objects."""
    if request.param == "folder":
        return lambda **options: ObjectSink(tmp_path, **options), lambda: in_folder(tmp_path)
    bucket = Bucket()
    return lambda **options: ObjectSink(S3Store(bucket, "b", prefix="p/"), **options), lambda: bucket.objects


class Writer:
    """Writes the contract's effects, each as if it came from a record of its own."""

    def __init__(self):
        self.number = 0

    def __call__(self, handle, effect):
        self.number += 1
        handle.write(record(self.number), f"{effect}\n".encode())


def record(number, sub=0):
    return UserRecord(b"", "k", str(number), None, None, sub)


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract(check, place):
    make, objects = place
    check(SinkUnderTest(make(), Writer(), lambda: lines(objects())))


def write_line(transaction, effect):
    shard, record_id, data = effect
    number, sub = record_id.split("/")[-2:]
    transaction.write(record(int(number), int(sub)), f"{shard} {record_id} {data.decode()}\n".encode())


def effects_in(objects):
    found = [line.split(" ") for line in lines(objects)]
    found.sort(key=lambda parts: int(parts[2]))
    return [(shard, record_id, data.encode()) for shard, record_id, data in found]


class CrashingStore:
    """A store whose calls are cut off at any place: the worker crashes before or after, the answer is lost, or the call fails."""

    def __init__(self, inner, rng):
        self.inner, self.rng, self.books = inner, rng, None
        self.cuts = 0

    def __getattr__(self, name):
        function = getattr(self.inner, name)

        def call(*arguments):
            if self.books.dying is not None:
                raise CrashError
            chance = self.rng.random() if self.books.crashes else 1.0
            if chance < 0.02:
                self.cut(name)
            result = function(*arguments)
            if 0.02 < chance < 0.04:
                self.cut(name)
            if 0.04 < chance < 0.08:
                raise TransientSinkError(f"the answer of {name} is lost")
            return result

        return call

    def cut(self, name):
        self.cuts += 1
        # The worker that makes the call is the one whose step runs; `at` crashes it at its next place.
        self.books.crash_now = True
        raise TransientSinkError(f"cut off in {name}")


class ObjectBooks(Books):
    crash_now = False

    def at(self, name, place):
        if self.crash_now:
            self.crash_now = False
            self.dying = name
            raise CrashError(place)
        super().at(name, place)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", fuzz.seeds(unit=1, fuzz=30))
def test_fleets_whose_calls_are_cut_off_anywhere_have_one_object_for_each_range(seed, place):
    make, objects = place
    sink = make(suffix=".txt")
    sink.store = store = CrashingStore(sink.store, Random(seed))
    books = ObjectBooks(seed, sink=sink, write=write_line)
    store.books = books
    books.play(turns=10, splits=(3,), merges=(6,))
    if not fuzz.TIMES:
        assert store.cuts
    books.check(effects_in(objects()))
    names = [name for name in objects() if name.endswith(".txt")]
    assert names


def test_a_worker_that_dies_after_its_commit_leaves_the_name_to_the_next_one(place):
    make, objects = place
    sink = make(suffix=".txt")
    sink.ensure_ready()
    assert sink.write(KEY, None, SinkRow(fence=1))
    transaction = sink.begin(KEY, SinkRow(fence=1))
    transaction.handle.write(record(5, 2), b"five\n")
    move, sink.store.move = sink.store.move, lambda *_: (_ for _ in ()).throw(TransientSinkError("killed"))
    done = SinkRow(ExtendedSequenceNumber("9"), 1)
    with pytest.raises(TransientSinkError):
        transaction.commit(done)
    assert lines(objects()) == [], "the position is there, and the object is not yet"
    assert sink.read(KEY) == done
    sink.store.move = move

    successor = make(suffix=".txt")
    assert successor.write(KEY, done, SinkRow(done.position, 2))
    assert lines(objects()) == ["five"]
    (name,) = [name for name in objects() if name.endswith(".txt")]
    assert name.removeprefix("p/") == f"app/orders/shardId-000000000000/{'5':0>56}-0000000002.txt"
    assert not [name for name in objects() if "_staged/" in name]


def test_a_worker_that_freezes_between_its_claim_and_the_clean_up_deletes_nothing_of_its_successor(place):
    """The successor has claimed and staged; the late clean-up must leave what a later fence has staged."""
    make, objects = place
    sink = make()
    assert sink.write(KEY, None, SinkRow(fence=1))
    names = sink.store.names
    late = []

    def freezing(prefix):
        successor = make()
        assert successor.write(KEY, SinkRow(fence=2), SinkRow(fence=3))
        transaction = successor.begin(KEY, SinkRow(fence=3))
        transaction.handle.write(record(5), b"five\n")
        move, successor.store.move = successor.store.move, lambda *names: late.append((move, names))
        assert transaction.commit(SinkRow(ExtendedSequenceNumber("9"), 3))
        return names(prefix)

    sink.store.names = freezing
    frozen = make()
    frozen.store = sink.store
    assert frozen.write(KEY, SinkRow(fence=1), SinkRow(fence=2))
    ((move, arguments),) = late
    move(*arguments)
    assert lines(objects()) == ["five"]


def test_a_clean_up_deletes_nothing_of_an_operator_who_commits_at_the_fence_of_the_claim(place):
    """An operator begins from the row as the worker has just claimed it, so that both have one fence."""
    make, objects = place
    sink, operator = make(), make()
    names, move = sink.store.names, operator.store.move
    late = []

    def operating(prefix):
        transaction = operator.begin(KEY, SinkRow(fence=1))
        transaction.handle.write(record(5), b"five\n")
        operator.store.move = lambda *names: late.append(names)
        assert transaction.commit(SinkRow(ExtendedSequenceNumber("9"), 2))
        return names(prefix)

    sink.store.names = operating
    assert sink.write(KEY, None, SinkRow(fence=1))
    (arguments,) = late
    move(*arguments)
    assert lines(objects()) == ["five"]


def test_a_row_that_is_deleted_gives_its_last_object_its_name_first(place):
    make, objects = place
    sink = make()
    assert sink.write(KEY, None, SinkRow(fence=1))
    transaction = sink.begin(KEY, SinkRow(fence=1))
    transaction.handle.write(record(5), b"five\n")

    def killed(*_names):
        raise TransientSinkError("killed")

    sink.store.move, move = killed, sink.store.move
    with pytest.raises(TransientSinkError):
        transaction.commit(SinkRow(ExtendedSequenceNumber("9"), 1, ended=True))
    sink.store.move = move
    assert make().delete_ended(KEY)
    assert lines(objects()) == ["five"]


@pytest.mark.parametrize("kept", ["stored", "not stored"])
def test_an_s3_client_that_repeats_a_call_is_refused_by_its_own_first_attempt(kept):
    bucket = Bucket()
    sink = ObjectSink(S3Store(bucket, "b"))
    assert sink.write(KEY, None, SinkRow(fence=1))
    put = bucket.put_object
    first = iter([True])

    def twice(**arguments):
        if "IfMatch" in arguments and next(first, False):
            if kept == "stored":
                put(**arguments)
            else:
                put(
                    **{
                        **arguments,
                        "Body": b'{"sequenceNumber": null, "subSequenceNumber": null, "fence": 2, "ended": false, "staged": null, "name": null, "write": "other"}',
                    }
                )
        return put(**arguments)

    bucket.put_object = twice
    transaction = sink.begin(KEY, SinkRow(fence=1))
    transaction.handle.write(record(5), b"five\n")
    assert transaction.commit(SinkRow(ExtendedSequenceNumber("9"), 1)) == (kept == "stored")
    assert lines(bucket.objects) == (["five"] if kept == "stored" else [])
    assert not [name for name in bucket.objects if name.startswith("_staged")]


def test_errors_of_s3_that_pass_and_that_do_not():
    bucket = Bucket()
    sink = ObjectSink(S3Store(bucket, "b"))
    for raised, expected in (
        (error("PutObject", "ConditionalRequestConflict", 409), TransientSinkError),
        (error("PutObject", "SlowDown", 503), TransientSinkError),
        (ReadTimeoutError(endpoint_url="x"), TransientSinkError),
        (error("PutObject", "AccessDenied", 403), SinkError),
    ):

        def fail(operation, key, raised=raised):
            if operation == "PutObject":
                raise raised

        bucket.before = fail
        with pytest.raises(SinkError) as caught:
            sink.write(KEY, None, SinkRow(fence=1))
        assert type(caught.value) is expected


def test_a_worker_writes_objects_in_the_order_of_its_shard(place):
    make, objects = place
    house = House(sink=make(suffix=".txt"))

    def handle(batch):
        for one in batch.records:
            batch.transaction.write(one, one.data + b"\n")

    house.fleet.add("w1", handle)
    for _ in range(3):
        house.put_and_run(4, 10)
    assert lines(objects()) == [data.decode() for data in house.fleet.sent]
    assert len([name for name in objects() if name.endswith(".txt")]) == 3


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="the folder cannot be used"):
        ObjectSink(tmp_path / "file").write(KEY, None, SinkRow(fence=1))
    assert isinstance(ObjectSink(str(tmp_path)).store, FolderStore)
    with pytest.raises(ConfigError, match="bucket"):
        S3Store(Bucket(), "")


def test_a_name_in_a_folder_is_on_the_disk_before_the_next_one_is_given(tmp_path, monkeypatch):
    """A row that were on the disk without the name of the object before it would lose that object when the power fails."""
    unsynced, renamed = set(), []
    fsync, rename, mkdir = os.fsync, Path.replace, Path.mkdir

    def note_fsync(descriptor):
        fsync(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            unsynced.discard(os.fstat(descriptor).st_ino)

    def note_name(folder):
        assert not unsynced, f"{folder} follows a name that is not on the disk"
        unsynced.add(folder.stat().st_ino)

    def note_replace(source, target):
        note_name(target.parent)
        renamed.append(target.name)
        return rename(source, target)

    def note_mkdir(folder, *arguments, **options):
        note_name(folder.parent)
        return mkdir(folder, *arguments, **options)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    monkeypatch.setattr(Path, "mkdir", note_mkdir)
    sink = ObjectSink(tmp_path / "objects")
    row = SinkRow(fence=1)
    assert sink.write(KEY, None, row)
    for number in (1, 2):
        transaction = sink.begin(KEY, row)
        transaction.handle.write(record(number), b"x")
        row = replace(row, position=ExtendedSequenceNumber(str(number)))
        assert transaction.commit(row)
    assert len(renamed) == 1 + 2 * 3, "two rows with what was staged, and its name"
    assert not unsynced
