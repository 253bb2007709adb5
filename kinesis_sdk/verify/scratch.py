"""Streams and tables of a run: they are created with a prefix and a tag, used only by this run, and found again by prefix and tag."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from kinesis_sdk.admin import Connection, Streams
from kinesis_sdk.common.aws import call_with_retries, is_throttle, translate_errors
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AdminError, AwsError, ResourceNotFoundError
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.verify.meter import Meter

PREFIX = "kinesis-sdk-verify-"
"""Beginning of the names of all streams and tables."""

TAG = "kinesis-sdk-verify"
"""Tag of all streams and tables; its value is the id of the run."""

_RUN = re.compile(r"[0-9a-f]{8}")
_NAMES = ("StreamName", "StreamARN", "ConsumerARN", "TableName", "ResourceArn", "ResourceARN", "StreamArn")
_READS = ("Describe", "List", "Get")
_CREATES = frozenset({"CreateStream", "CreateTable"})
_INVALID = re.compile(r"[^\w.:/-]", re.ASCII)
"""A character that is invalid in names, so that a request with such a name can only fail."""
_ATTEMPTS = 8
_IN_USE = frozenset({"ResourceInUseException", "LimitExceededException"})
_GONE = "ResourceNotFoundException"
_POLL = 1.0


def new_run() -> str:
    """Return a new id: eight hexadecimal digits."""
    return secrets.token_hex(4)


def is_run(text: str) -> bool:
    """Return whether a text is the id of a run."""
    return _RUN.fullmatch(text) is not None


class Scratch:
    """Streams and tables of one run, and the clients that create them. Thread-safe.

    Args:
        clients: Clients of scripts, by service; they do not validate requests.
        direct: Clients of workers and producers, by service; None uses ``clients``.
        run: Id of the run.
        meter: Counts the calls of scripts.
        sleep: Called with the seconds to wait.

    Attributes:
        run: Id of the run.
        prefix: Beginning of the names of this run.
        tags: The tag of this run.
        direct: Clients whose calls are neither checked nor counted.
    """

    def __init__(
        self,
        clients: Mapping[str, Any],
        direct: Mapping[str, Any] | None = None,
        *,
        run: str,
        meter: Meter,
        sleep: Callable[[float], None],
    ) -> None:
        self.run = run
        self.prefix: str = f"{PREFIX}{run}-"
        self.tags: dict[str, str] = {TAG: run}
        self.meter = meter
        self.sleep = sleep
        self.direct: Mapping[str, Any] = clients if direct is None else direct
        self._clients = clients
        self._lock = threading.Lock()
        self._count = 0
        self._made: dict[tuple[str, str], bool] = {}

    def name(self) -> str:
        """Return a new name, which is not the beginning of another name."""
        with self._lock:
            self._count += 1
            return f"{self.prefix}{self._count:03}x"

    def client(self, service: str) -> ScratchClient:
        """Return a client that calls only for this run: ``kinesis``, ``dynamodb`` or ``dynamodbstreams``."""
        return ScratchClient(self, service, self._clients[service])

    def remember(self, kind: str, name: str, *, exists: bool = False) -> None:
        """Note a ``stream`` or ``table`` before this run or its workers create it, and again when it is known to exist."""
        with self._lock:
            self._made[kind, name] = exists or self._made.get((kind, name), False)

    @property
    def made(self) -> list[tuple[str, str]]:
        """Kind and name of every stream and table that may exist."""
        with self._lock:
            return list(self._made)

    @property
    def count(self) -> int:
        """Number of streams and tables that were created."""
        with self._lock:
            return sum(self._made.values())

    def discard(self) -> None:
        """Delete the streams and tables that exist so far, without waiting. The removal at the end of the run deletes the rest."""
        for kind, name in self.made:
            try:
                is_gone = _delete(self.direct, kind, name)
            except (ClientError, BotoCoreError):
                continue  # The removal at the end asks again, and reports it.
            if is_gone and kind == "stream":
                self.meter.end("DeleteStream", {}, name, None)

    def check(self, operation: str, request: Mapping[str, Any]) -> None:
        """Raise `AdminError` unless a request names only streams and tables that this run may touch."""
        names = [str(name) for name in _names_in(request)]
        is_empty = not {"RequestItems", "TransactItems"}.isdisjoint(request)  # a batch of nothing
        if not names and not is_empty and not operation.startswith(_READS):
            raise AdminError(f"{operation} names no stream or table of this run, so the call is not made")
        for name in names:
            if self.prefix not in name and not _INVALID.search(name):
                raise AdminError(f"{operation}: {name} does not belong to this run, so the call is not made")


def _names_in(request: Mapping[str, Any]) -> Iterator[Any]:
    for key in _NAMES:
        if request.get(key) is not None:
            yield request[key]
    yield from request.get("RequestItems") or ()
    for action in request.get("TransactItems") or ():
        for part in action.values():
            yield part["TableName"]


def _stream_of(request: Mapping[str, Any]) -> str | None:
    """Return the name of the stream of Kinesis that a request names; None if it names none."""
    named = request.get("StreamName") or request.get("StreamARN")
    return None if named is None else str(named).rpartition("/")[2]


class ScratchClient:
    """A client whose calls are checked, tagged and counted, and retried if they were throttled. All other attributes are the client's."""

    def __init__(self, scratch: Scratch, service: str, client: Any) -> None:
        self._scratch = scratch
        self._service = service
        self._client = client

    def __getattr__(self, method: str) -> Any:
        value = getattr(self._client, method)
        if method.startswith("_") or not callable(value) or method == "close":
            return value
        operation = "".join(part.capitalize() for part in method.split("_"))

        def call(**request: Any) -> Any:
            return self._call(operation, value, request)

        return call

    def _call(self, operation: str, method: Callable[..., Any], request: dict[str, Any]) -> Any:
        scratch = self._scratch
        scratch.check(operation, request)
        stream = _stream_of(request)
        if operation in _CREATES:
            request = self._marked(operation, request)
        for attempt in range(1, _ATTEMPTS + 1):
            scratch.meter.begin(operation, request, stream)
            try:
                response = method(**request)
            except ClientError as error:
                if attempt == _ATTEMPTS or not _may_be_repeated(error):
                    raise
                scratch.sleep(min(4.0, 0.25 * 2**attempt))
            else:
                scratch.meter.end(operation, request, stream, response)
                if operation in _CREATES:
                    scratch.remember(*_made_by(request), exists=True)
                return response
        raise AssertionError

    def _marked(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return a request that creates a stream or table with the tag of this run, and note its name."""
        tags = self._scratch.tags
        self._scratch.remember(*_made_by(request))
        if operation == "CreateStream":
            return {**request, "Tags": {**request.get("Tags", {}), **tags}}
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        return {**request, "Tags": [*request.get("Tags", ()), *listed]}


def _made_by(request: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind and the name of the stream or table that a request creates."""
    return (
        ("stream", str(request["StreamName"]))
        if "StreamName" in request
        else ("table", str(request["TableName"]))
    )


def _may_be_repeated(error: ClientError) -> bool:
    """Return whether a call was throttled. LimitExceededException is also the response to a request beyond a limit."""
    details = error.response["Error"]
    if details["Code"] == "LimitExceededException":
        return "rate exceeded" in str(details.get("Message", "")).lower()
    return is_throttle(str(details["Code"]))


def _delete(clients: Mapping[str, Any], kind: str, name: str) -> bool:
    """Request a deletion; return whether the service accepted the request, or the stream or table does not exist."""
    try:
        if kind == "stream":
            clients["kinesis"].delete_stream(StreamName=name, EnforceConsumerDeletion=True)
        elif not _delete_table(clients["dynamodb"], name):
            return False
    except ClientError as error:
        code = str(error.response["Error"]["Code"])
        if code == _GONE:
            return True
        # A name that could not be created cannot be deleted either. The deletion of a stream or table that is in use is requested again.
        if code in _IN_USE or is_throttle(code) or _INVALID.search(name):
            return False
        raise
    return True


def _delete_table(client: Any, name: str) -> bool:
    """Request the deletion of a table. If an ended run has left the table protected, remove the protection instead, and return False."""
    try:
        client.delete_table(TableName=name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationException" or _INVALID.search(name):
            raise
        if not client.describe_table(TableName=name)["Table"].get("DeletionProtectionEnabled"):
            raise
        client.update_table(TableName=name, DeletionProtectionEnabled=False)
        return False
    return True


@dataclass(frozen=True, order=True)
class Leftover:
    """A stream or table of a run.

    Attributes:
        kind: ``stream`` or ``table``.
        name: Its name.
        run: Id of the run in its tag; None if it has the prefix but not the tag.
    """

    kind: str
    name: str
    run: str | None


@dataclass(frozen=True)
class Removal:
    """Result of a removal.

    Attributes:
        removed: Streams and tables that no longer exist.
        left: Streams and tables that still exist, because they could not be deleted in time.
        unmarked: Streams and tables with the prefix but without the tag, which were not touched.
    """

    removed: tuple[Leftover, ...]
    left: tuple[Leftover, ...]
    unmarked: tuple[Leftover, ...]


class Remover:
    """Finds and removes the streams and tables of runs. The removal can be interrupted at any time and started again.

    Args:
        connection: Account and region.
        clock: Measures the wait.
        sleep: Called with the seconds to wait; replaced in tests.
    """

    def __init__(
        self, connection: Connection, *, clock: Clock, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clients = {service: connection.client(service) for service in ("kinesis", "dynamodb")}
        self._streams = Streams(connection, clock=clock, sleep=sleep)
        self._clock = clock
        self._sleep = sleep

    def find(self, run: str | None = None) -> list[Leftover]:
        """Return all streams and tables with the prefix, sorted.

        Args:
            run: Id of the run whose streams and tables to return; None for all runs. Things without the tag are always returned.

        Raises:
            AwsError: If a call fails.
        """
        prefix = PREFIX if run is None else f"{PREFIX}{run}-"
        found = [Leftover("stream", name, self._run_of_stream(name)) for name in self._streams.names(prefix)]
        found += [Leftover("table", name, self._run_of_table(name)) for name in self._tables(prefix)]
        return sorted(found, key=lambda one: (one.kind, one.name))

    def remove(
        self,
        run: str | None = None,
        *,
        also: list[tuple[str, str]] | None = None,
        timeout: float = 300.0,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Removal:
        """Delete the streams and tables of runs, and wait until they no longer exist.

        Args:
            run: Id of the run; None for all runs.
            also: Kind and name of every stream and table that this process has created, even if lists and tags do not show it yet.
            timeout: Maximum seconds to wait until none exists.
            tell: Called with a sentence about the progress.

        Raises:
            AwsError: If a call fails. If that call is a deletion, the error is raised after all other streams and
                tables were deleted.
        """
        known = {(kind, name): Leftover(kind, name, run) for kind, name in also or ()}
        found = {(one.kind, one.name): one for one in self.find(run)}
        unmarked = [one for key, one in found.items() if one.run is None and key not in known]
        waiting = {**{key: one for key, one in found.items() if one.run is not None}, **known}
        for key in [key for key in waiting if self._status(*key) is None]:
            del waiting[key]
        total = dict(waiting)
        failed: list[AwsError] = []
        deadline = self._clock.monotonic() + timeout
        if total:
            tell(f"removing {len(total)} streams and tables")
        while waiting:
            for key in list(waiting):
                status = self._status(*key)
                if status is None:
                    del waiting[key]
                elif status != "DELETING":
                    try:
                        with translate_errors(f"Delete{key[0].capitalize()}"):
                            _delete(self._clients, *key)
                    except AwsError as error:
                        failed.append(error)
                        del waiting[key]
            if not waiting or self._clock.monotonic() >= deadline:
                break
            self._sleep(_POLL)
        if failed:
            raise failed[0]
        return Removal(
            tuple(one for key, one in total.items() if key not in waiting),
            tuple(waiting.values()),
            tuple(unmarked),
        )

    def _status(self, kind: str, name: str) -> str | None:
        """Return the status of a stream or table; None if it does not exist."""
        if _INVALID.search(name):
            return None
        try:
            if kind == "stream":
                return self._streams.describe(name).status
            table = self._read("DescribeTable", TableName=name)["Table"]
        except ResourceNotFoundError:
            return None
        return str(table["TableStatus"])

    def _run_of_stream(self, name: str) -> str | None:
        try:
            return self._streams.tags(name).get(TAG)
        except ResourceNotFoundError:
            return None

    def _run_of_table(self, name: str) -> str | None:
        try:
            arn = self._read("DescribeTable", TableName=name)["Table"]["TableArn"]
            tags = self._read("ListTagsOfResource", ResourceArn=arn).get("Tags") or ()
        except ResourceNotFoundError:
            return None
        return next((str(tag["Value"]) for tag in tags if tag["Key"] == TAG), None)

    def _tables(self, prefix: str) -> list[str]:
        found: list[str] = []
        request: dict[str, Any] = {}
        limit = PageLimit("ListTables")
        while True:
            page = self._read("ListTables", **request)
            found += [str(name) for name in page.get("TableNames", ())]
            last = page.get("LastEvaluatedTableName")
            if not last:
                return sorted(name for name in found if name.startswith(prefix))
            limit.check(str(last))
            request = {"ExclusiveStartTableName": last}

    def _read(self, operation: str, **request: Any) -> Mapping[str, Any]:
        client = self._clients["dynamodb"]
        method = getattr(client, re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower())
        response: Mapping[str, Any] = call_with_retries(
            lambda: method(**request), operation=operation, client=client, sleep=self._sleep
        )
        return response
