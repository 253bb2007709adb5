"""Searches of the console: bounded in number, told in parts, ended by a page or with the console."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator

import pytest

from kinesis_sdk.admin.merge import ShardRecord
from kinesis_sdk.admin.reading import RecordFilter
from kinesis_sdk.admin.search import Search
from kinesis_sdk.cli.web import searches as searches_module
from kinesis_sdk.cli.web.searches import Searches
from kinesis_sdk.common.errors import ConfigError, ThrottledError
from kinesis_sdk.common.records import UserRecord
from tests.cli.web.asgi import request
from tests.cli.web.console import CHANGE, app_of, get, post


class Reading:
    """Records of a test; ``closed`` says whether the reader was ended."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.closed = False

    def records(self) -> Generator[ShardRecord, None, None]:
        try:
            for number in range(5):
                yield ShardRecord("s", UserRecord(str(number).encode(), "k", str(number)))
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True

    def begin(self, searches: Searches) -> str:
        reading = self.records()
        return searches.start(
            Search(reading, RecordFilter()), lambda one: {"data": one.record.data.decode()}, reading
        )


def test_results_are_told_once_and_the_reader_is_closed() -> None:
    begun: list[Callable[[], None]] = []
    searches = Searches(spawn=begun.append)
    reading = Reading()
    identity = reading.begin(searches)
    state = searches.state(identity, 0)
    assert state is not None
    assert (state["running"], state["found"]) == (True, [])
    begun[0]()
    state = searches.state(identity, 3)
    assert state is not None
    assert (state["running"], state["read"], state["end"]) == (False, 5, "window")
    assert [one["data"] for one in state["found"]] == ["3", "4"], "after the three that the page has"
    assert reading.closed
    assert searches.state("unknown", 0) is None
    assert not searches.stop("unknown")


def test_an_error_is_told_and_a_stopped_search_reads_no_further() -> None:
    begun: list[Callable[[], None]] = []
    searches = Searches(spawn=begun.append)
    failing = Reading(ThrottledError("too many reads", operation="GetRecords"))
    identity = failing.begin(searches)
    begun[0]()
    state = searches.state(identity, 0)
    assert state is not None
    assert "too many reads" in state["error"]
    identity = Reading().begin(searches)
    searches.close()
    begun[1]()
    state = searches.state(identity, 0)
    assert state is not None
    assert (state["end"], state["read"]) == ("stopped", 0)


def test_the_number_of_searches_is_bounded() -> None:
    begun: list[Callable[[], None]] = []
    searches = Searches(spawn=begun.append)
    for _ in range(searches_module._AT_ONCE):
        Reading().begin(searches)
    with pytest.raises(ConfigError, match="fewer running searches"):
        Reading().begin(searches)
    for work in begun:
        work()
    first = Reading().begin(searches)
    for _ in range(searches_module._KEPT):
        begun[-1]()
        Reading().begin(searches)
    assert searches.state(first, 0) is None, "the oldest is forgotten"


def test_a_page_searches() -> None:
    app = app_of()
    body = {"stream": "orders", "key": "", "where": "total > `1000`", "minutes": 60}
    identity = post("/api/searches", body, app).data["id"]
    while (state := get(f"/api/searches/{identity}", app).data)["running"]:
        pass
    assert (state["read"], len(state["found"]), state["end"]) == (13, 3, "window")
    assert state["found"][0]["shard"].startswith("shardId-")
    assert post(f"/api/searches/{identity}/stop", {}, app).status == 200
    assert get("/api/searches/unknown", app).status == 404
    assert post("/api/searches/unknown/stop", {}, app).status == 404
    for wrong in ({"where": "["}, {"minutes": 0}, {"minutes": "x"}, {"key": 5}, {"where": "x" * 1001}):
        assert post("/api/searches", {**body, **wrong}, app).status == 400, wrong
    # Only the page itself may begin one.
    content = json.dumps(body).encode()
    headers = {name: value for name, value in CHANGE.items() if name == "content-type"}
    assert request(app, "POST", "/api/searches", headers, content).status == 403
