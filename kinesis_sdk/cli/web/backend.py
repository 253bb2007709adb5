"""The part of the admin API that the console needs, as plain data. The console's own tests use a backend with generated views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kinesis_sdk.admin import FleetView
from kinesis_sdk.admin.search import Search
from kinesis_sdk.cli.web.hub import MakeWatch

JsonObject = Mapping[str, Any]
"""Data that ``json.dumps`` accepts."""


class Backend(Protocol):
    """The admin API behind the console. Every method may block: it is called in a thread of the server's pool."""

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the connection, for the commands that the page shows."""

    def describe(self) -> JsonObject:
        """Return ``region``, ``endpoint`` and ``account`` for the page's header; None for each that is unknown."""

    def applications(self) -> list[JsonObject]:
        """Return the applications: ``name``, and facts from the table."""

    def read_fleets(self, names: Sequence[str], on_view: Callable[[FleetView], None]) -> None:
        """Read each application once, with its lag, and pass each view on."""

    def make_watch(self, application: str) -> MakeWatch:
        """Return the function that creates the watch of an application, without making a call."""

    def stream(self, name: str) -> JsonObject:
        """Return the shards of a stream with their hash ranges, parents and times."""

    def search(
        self, *, stream: str, key: str, where: str, minutes: int
    ) -> tuple[Search, Callable[[Any], JsonObject], Any]:
        """Return a search for the records of the last minutes, and two functions.

        The first function makes plain data of a record; the second function closes the reader.
        """

    def records(
        self, *, stream: str, shard: str, position: str, iterator: str | None, limit: int
    ) -> JsonObject:
        """Return one page of the records of a shard, decoded."""


class Planner(Protocol):
    """Changes to leases. `plan` may block: it is called in a thread of the server's pool."""

    def plan(
        self, application: str, request: JsonObject
    ) -> tuple[JsonObject, Callable[[Callable[[str], None]], JsonObject]]:
        """Return the writes of a change as data, and the function that makes the writes.

        This function is passed a callback for lines of progress, and returns the outcome.

        Raises:
            ConfigError: If the request is invalid.
            KinesisSdkError: If a call failed, or the change is unsafe.
        """
