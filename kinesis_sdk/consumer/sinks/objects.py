"""A sink of objects, in a folder or in S3: one object for each range of records, even if workers die.

Object stores have no transactions, but they have compare-and-set for one object. So the row of a shard is an object, and a commit
has two phases:

```
stage the content ─► row: position', "move staged ─► name" ─► move ─► (the next commit)
                       └─ the commit: by compare-and-set      └─ repeated by the next reader of the row, if this worker dies
```

A staged object is moved only if a row names it. A later claim of the shard deletes the object if the object's fence is lower
than the claim's: a row that names the object can then no longer be written.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote
from uuid import uuid4

from kinesis_sdk.common.aws import translate_error
from kinesis_sdk.common.errors import ConfigError, SinkError, TransientSinkError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.validation import check_text
from kinesis_sdk.consumer.sinks.sink import SinkKey, SinkRow

_ROWS, _STAGED = "_positions", "_staged"
_DIGITS = 56
"""Digits to which names pad sequence numbers, the maximum of Kinesis, so that they sort in the order of the shard."""


class ObjectStore(Protocol):
    """Part of an object store that `ObjectSink` uses. Thread-safe.

    Every method raises `TransientSinkError` for failures that are usually temporary, and `SinkError` for all other failures.
    """

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Return the newest content of an object and a tag that identifies it; None if there is no such object."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Create or replace an object."""
        ...

    def change(self, name: str, tag: str | None, content: bytes) -> str | None:
        """Replace an object with this tag, or create one if the tag is None; return the new tag, or None on a mismatch."""
        ...

    def move(self, source: str, target: str) -> None:
        """Rename an object, replacing any object with the new name; do nothing if it no longer exists."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return all object names that begin with a prefix."""
        ...

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        ...


class FolderStore:
    """Objects as files below a folder of a local file system. Several processes of one machine may use it (POSIX only).

    Args:
        folder: The folder; created if it is missing.

    Raises:
        ConfigError: If the system has no `fcntl`, such as Windows.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            import fcntl
        except ImportError as error:
            raise ConfigError("folder", str(folder), "a POSIX system, whose file locks it needs") from error
        self._fcntl = fcntl
        self.folder: Path = Path(folder)

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Read a file."""
        with _translated():
            try:
                content = (self.folder / name).read_bytes()
            except FileNotFoundError:
                return None
        return content, hashlib.sha256(content).hexdigest()

    def put(self, name: str, content: bytes) -> None:
        """Write a temporary file and rename it, so that the file exists completely or not at all."""
        path = self.folder / name
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        with _translated():
            self._make_folder(path.parent)
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync(path.parent)

    def change(self, name: str, tag: str | None, content: bytes) -> str | None:
        """Compare and write under a lock, which the system releases when its process dies."""
        lock = self.folder / f"{name}.lock"
        with _translated():
            self._make_folder(lock.parent)
            with lock.open("wb") as held:
                self._fcntl.flock(held, self._fcntl.LOCK_EX)
                found = self.get(name)
                if (None if found is None else found[1]) != tag:
                    return None
                self.put(name, content)
        return hashlib.sha256(content).hexdigest()

    def move(self, source: str, target: str) -> None:
        """Rename a file."""
        with _translated():
            folder = (self.folder / target).parent
            self._make_folder(folder)
            with suppress(FileNotFoundError):
                (self.folder / source).replace(self.folder / target)
            # Sync even if the source no longer exists: the worker that renamed it may have died before this line.
            _sync(folder)

    def names(self, prefix: str) -> list[str]:
        """List the files of a folder, without the store's own; a prefix ends with a slash."""
        with _translated():
            return [
                f"{prefix}{path.name}"
                for path in (self.folder / prefix).glob("*")
                if path.is_file() and path.suffix != ".lock" and not path.name.startswith(".")
            ]

    def delete(self, name: str) -> None:
        """Delete a file."""
        with _translated():
            (self.folder / name).unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            _sync(one.parent)


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    # Otherwise: an object gets its name, the next row is written, and the machine loses power. The row on disk no longer mentions
    # the object, but its name was never written, and the object is lost.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        raise SinkError(f"the folder cannot be used: {error}") from error
    except (
        OSError
    ) as error:  # for example a full disk: an operator makes room, and the batch is processed again
        raise TransientSinkError(f"the folder cannot be used: {error}") from error


class ObjectClient(Protocol):
    """The part of boto3's S3 client that `S3Store` needs."""

    def get_object(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """GetObject."""
        ...

    def put_object(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """PutObject."""
        ...

    def copy_object(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """CopyObject."""
        ...

    def delete_object(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """DeleteObject."""
        ...

    def list_objects_v2(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """ListObjectsV2."""
        ...


class S3Store:
    """Objects in an S3 bucket, or in a store that has S3's conditional writes (``If-Match``, ``If-None-Match`` in PutObject).

    Args:
        client: boto3 S3 client.
        bucket: Name of the bucket.
        prefix: Beginning of all names, for example ``"payments/"``.
    """

    def __init__(self, client: ObjectClient, bucket: str, *, prefix: str = "") -> None:
        check_text("bucket", bucket, 1, 255)
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def get(self, name: str) -> tuple[bytes, str] | None:
        """GetObject."""
        try:
            found = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
            return found["Body"].read(), found["ETag"]
        except Exception as error:
            if _code(error) in ("NoSuchKey", "404"):
                return None
            raise self._error(error, "GetObject") from error

    def put(self, name: str, content: bytes) -> None:
        """PutObject."""
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content)
        except Exception as error:
            raise self._error(error, "PutObject") from error

    def change(self, name: str, tag: str | None, content: bytes) -> str | None:
        """PutObject with a condition. If the client retries by itself, its own first attempt may have made the condition false."""
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            done = self._client.put_object(
                Bucket=self._bucket, Key=self._prefix + name, Body=content, **condition
            )
        except Exception as error:
            if _code(error) in ("PreconditionFailed", "412", "NoSuchKey", "404"):
                return None
            raise self._error(error, "PutObject") from error
        new: str = done["ETag"]
        return new

    def move(self, source: str, target: str) -> None:
        """CopyObject and DeleteObject."""
        try:
            self._client.copy_object(
                Bucket=self._bucket,
                Key=self._prefix + target,
                CopySource={"Bucket": self._bucket, "Key": self._prefix + source},
            )
        except Exception as error:
            if _code(error) in ("NoSuchKey", "404"):
                return
            raise self._error(error, "CopyObject") from error
        self.delete(source)

    def names(self, prefix: str) -> list[str]:
        """ListObjectsV2, all pages."""
        names: list[str] = []
        more: dict[str, str] = {}
        while True:
            try:
                page = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix + prefix, **more)
            except Exception as error:
                raise self._error(error, "ListObjectsV2") from error
            names += [item["Key"].removeprefix(self._prefix) for item in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                return names
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, name: str) -> None:
        """DeleteObject."""
        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)
        except Exception as error:
            raise self._error(error, "DeleteObject") from error

    def _error(self, error: Exception, operation: str) -> SinkError:
        # 409: another conditional write of the same object is under way.
        busy = _code(error) in ("ConditionalRequestConflict", "OperationAborted", "SlowDown", "409")
        translated = translate_error(error, operation, self._client)
        return (TransientSinkError if busy or translated.retryable else SinkError)(str(translated))


def _code(error: Exception) -> str:
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


@dataclass(frozen=True)
class _Row:
    """The row of a shard as an object.

    Attributes:
        staged: Object to rename to `name`; both are None if no object has to be renamed.
        write: Identifies the write of this row, so that its author recognizes it.
    """

    row: SinkRow
    staged: str | None = None
    name: str | None = None
    write: str = field(default_factory=lambda: uuid4().hex)

    def encode(self) -> bytes:
        position = self.row.position
        return json.dumps(
            {
                "sequenceNumber": None if position is None else position.sequence_number,
                "subSequenceNumber": None if position is None else position.sub_sequence_number,
                "fence": self.row.fence,
                "ended": self.row.ended,
                "staged": self.staged,
                "name": self.name,
                "write": self.write,
            }
        ).encode()

    @classmethod
    def decode(cls, content: bytes) -> _Row:
        item = json.loads(content)
        number = item["sequenceNumber"]
        position = None if number is None else ExtendedSequenceNumber(number, item["subSequenceNumber"])
        return cls(
            SinkRow(position, item["fence"], item["ended"]), item["staged"], item["name"], item["write"]
        )


class ObjectContent:
    r"""The object of a transaction, which the handler writes.

    ```python
    for record in batch.records:
        batch.transaction.write(record, record.data + b"\n")
    ```

    The object is named after the first record that is written: ``application/stream/shard/sequence number-sub-sequence number``.
    A batch for which nothing is written creates no object.
    """

    def __init__(self) -> None:
        self.first: UserRecord | None = None
        self.parts: list[bytes] = []

    def write(self, record: UserRecord, content: bytes) -> None:
        """Append to the object.

        Args:
            record: The record from which the content was made.
            content: Any bytes, which are stored unchanged.
        """
        if self.first is None:
            self.first = record
        self.parts.append(content)


class ObjectTransaction:
    """A transaction of an `ObjectSink`: nothing is stored before its commit."""

    def __init__(self, sink: ObjectSink, key: SinkKey, seen: SinkRow, tag: str) -> None:
        self.handle: ObjectContent = ObjectContent()
        self._sink = sink
        self._key = key
        self._seen = seen
        self._tag = tag

    def commit(self, row: SinkRow) -> bool:
        """Stage the object, change the row and rename the object."""
        return self._sink.commit(self._key, self._seen, self._tag, row, self.handle)

    def rollback(self) -> None:
        """Do nothing: nothing was stored."""


class ObjectSink:
    r"""A `Sink` of objects, in a folder or in S3. ``batch.transaction`` is an `ObjectContent`.

    ```python
    sink = ObjectSink("/data/orders")  # or ObjectSink(S3Store(boto3.client("s3"), "bucket", prefix="orders/"))

    def handle(batch):
        for record in batch.records:
            batch.transaction.write(record, record.data + b"\n")

    Worker("orders", application_name="archive", handler=handle, sink=sink).run()
    ```

    Each committed range of records has exactly one object, and each record is in one range. The object names of a shard sort in
    the order of its records. Names that begin with ``_positions/`` and ``_staged/`` are the sink's own.

    Unlike in a database, an object may become visible after its position. If a worker dies between these two steps, the next owner of the
    shard renames the object.

    Cost in S3: two PutObject, one CopyObject and one DeleteObject for each batch.

    Args:
        store: Path of a folder, or an object store.
        suffix: End of the names, for example ``".jsonl"``.

    Raises:
        ConfigError: If a value is not accepted.
    """

    max_records: int | None = None
    serves_coroutines: bool = True

    def __init__(self, store: str | Path | ObjectStore, *, suffix: str = "") -> None:
        check_text("suffix", suffix, 0, 64)
        self.store: ObjectStore = FolderStore(store) if isinstance(store, (str, Path)) else store
        self._suffix = suffix
        self._lock = threading.Lock()
        # Rows as this process last left them, with their objects renamed. Only saves reads: a commit compares the tag.
        self._known: dict[SinkKey, tuple[SinkRow, str]] = {}

    def ensure_ready(self) -> None:
        """Check that the store can be read."""
        self.store.get(f"{_ROWS}/none")

    def read(self, key: SinkKey) -> SinkRow | None:
        """Return a row, or None."""
        found = self._read(key)
        return None if found is None else found[0].row

    def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """Change or create a row. First finish the commit of a dead worker, if there is one."""
        found = self._read(key)
        if (None if found is None else found[0].row) != seen:
            return False
        tag = None
        if found is not None:
            tag = found[1]
            self._finish(found[0])
        if self._change(key, tag, _Row(row)) is None:
            return False
        folder = _folder(_STAGED, key)
        for name in self.store.names(folder):
            # Leave the objects of later claims alone: this worker may have been frozen since the line above.
            fence = name.removeprefix(folder).partition("-")[0]
            if fence.isdecimal() and int(fence) < row.fence:
                self.store.delete(name)
        return True

    def begin(self, key: SinkKey, seen: SinkRow) -> ObjectTransaction | None:
        """Begin a transaction."""
        with self._lock:
            known = self._known.get(key)
        if known is None or known[0] != seen:
            found = self._read(key)
            if found is None or found[0].row != seen:
                return None
            self._finish(found[0])
            known = self._keep(key, seen, found[1])
        return ObjectTransaction(self, key, seen, known[1])

    def lease_keys(self, application: str, stream: str) -> list[str]:
        """Return the lease keys of all rows of an application and a stream."""
        folder = _folder(_ROWS, SinkKey(application, stream, "")).rstrip("/") + "/"
        return [unquote(name.removeprefix(folder)) for name in self.store.names(folder)]

    def delete_ended(self, key: SinkKey) -> bool:
        """Delete the row of a finished shard.

        Its objects stay, and its lock file stays as well, because another process may wait for it.
        """
        found = self._read(key)
        if found is None or not found[0].row.ended:
            return False
        self._finish(found[0])
        with self._lock:
            self._known.pop(key, None)
        self.store.delete(_row_name(key))
        return True

    def translate(self, error: BaseException) -> BaseException:
        """Return the error: the handler makes no calls through the sink."""
        return error

    def commit(self, key: SinkKey, seen: SinkRow, tag: str, row: SinkRow, content: ObjectContent) -> bool:
        """Store an object and a row, if the current row is ``seen`` and has this tag."""
        changed = _Row(row)
        if content.first is not None:
            first = content.first
            place = f"{first.sequence_number:0>{_DIGITS}}-{first.sub_sequence_number:010}"
            name = f"{_path(key)}/{place}{self._suffix}"
            staged = f"{_folder(_STAGED, key)}{seen.fence}-{uuid4().hex}"
            self.store.put(staged, b"".join(content.parts))
            changed = _Row(row, staged, name)
        new = self._change(key, tag, changed)
        if new is None:
            if changed.staged is not None:
                self.store.delete(changed.staged)
            return False
        self._finish(changed)
        self._keep(key, row, new)
        return True

    def _change(self, key: SinkKey, tag: str | None, changed: _Row) -> str | None:
        """Write a row if the current row has this tag; return the new tag, or None on a mismatch."""
        with self._lock:
            self._known.pop(key, None)
        name, content = _row_name(key), changed.encode()
        new = self.store.change(name, tag, content)
        if new is None:
            # If a client retries after a lost response, the row that its first attempt stored makes the condition false.
            found = self.store.get(name)
            if found is not None and found[0] == content:
                return found[1]
        return new

    def _finish(self, row: _Row) -> None:
        """Rename the object of a commit. Idempotent."""
        if row.staged is not None and row.name is not None:
            self.store.move(row.staged, row.name)

    def _keep(self, key: SinkKey, row: SinkRow, tag: str) -> tuple[SinkRow, str]:
        with self._lock:
            self._known[key] = (row, tag)
        return row, tag

    def _read(self, key: SinkKey) -> tuple[_Row, str] | None:
        found = self.store.get(_row_name(key))
        return None if found is None else (_Row.decode(found[0]), found[1])


def _folder(kind: str, key: SinkKey) -> str:
    return f"{kind}/{_path(key)}/"


def _path(key: SinkKey) -> str:
    return "/".join(quote(part, safe="") for part in key)


def _row_name(key: SinkKey) -> str:
    return _folder(_ROWS, key).rstrip("/")
