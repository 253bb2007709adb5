from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from importlib.resources import files

import pytest

from kinesis_sdk.cli.web import changes as changes_module
from kinesis_sdk.cli.web.app import describe_error
from kinesis_sdk.cli.web.security import CSRF_HEADER, RESPONSE_HEADERS
from kinesis_sdk.common.errors import (
    AwsConfigError,
    EndpointUnreachableError,
    KinesisSdkError,
    ResourceNotFoundError,
    ThrottledError,
)
from tests.cli.web.asgi import request, send, settled, stream
from tests.cli.web.console import CHANGE, app_of, backend, get, post
from tests.cli.web.generated import HOSTILE, GeneratedBackend, GeneratedFleet

RECORDS = "/api/records?stream=orders&shard=shardId-000000000001&position=TRIM_HORIZON"


def test_every_asset_is_served_with_its_type_and_without_another_site() -> None:
    app = app_of()
    for item in (files("kinesis_sdk.cli.web") / "assets").iterdir():
        reply = get(f"/assets/{item.name}", app)
        assert reply.status == 200
        kinds = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}
        assert reply.headers["content-type"].startswith(kinds[item.name.rpartition(".")[2]])
        text = reply.body.decode()
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), f"{item.name} names another site"
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        )
    assert b'<script type="module" src="/assets/main.js">' in get("/", app).body


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../app.py",
        "/assets/..%2fapp.py",
        "/assets/%2e%2e%2fserver.py",
        "/assets/app.py",
        "/assets/",
        "/nothing",
    ],
)
def test_nothing_but_assets_is_served(path: str) -> None:
    assert get(path).status == 404


def test_the_imports_of_the_modules_exist() -> None:
    folder = files("kinesis_sdk.cli.web") / "assets"
    names = {item.name for item in folder.iterdir()}
    for item in folder.iterdir():
        if not item.name.endswith(".js"):
            continue
        for imported, module in re.findall(
            r"import \{([^}]*)\} from \"\./([\w-]+\.js)\"", item.read_text(encoding="utf-8")
        ):
            assert module in names
            exported = set(
                re.findall(
                    r"export (?:async )?(?:function|class|const) (\w+)",
                    (folder / module).read_text(encoding="utf-8"),
                )
            )
            assert {name.strip() for name in imported.split(",") if name.strip()} <= exported, item.name


def test_every_response_has_the_headers_that_protect_it() -> None:
    app = app_of()
    for reply in (
        get("/", app),
        get("/api/session", app),
        get("/nothing", app),
        get("/", app, host="evil.example"),
    ):
        for name, value in RESPONSE_HEADERS.items():
            assert reply.headers[name] == value


def test_the_token_in_the_address_becomes_a_cookie() -> None:
    app = app_of(token="a long enough token")
    assert get("/", app).status == 401
    assert b"token" in get("/", app).body
    assert get("/?token=another%20token", app).status == 401
    reply = get("/?token=a%20long%20enough%20token", app)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "a long enough token" not in cookie
    assert get("/api/session", app, cookie=cookie.partition(";")[0]).status == 200
    assert get("/api/session?token=a%20long%20enough%20token", app).status == 401, "only the page takes it"
    assert get("/?token=a%20long%20enough%20token", app, host="evil.example").status == 421


def test_the_session_says_what_the_page_may_do() -> None:
    data = get("/api/session", app_of(applications=("billing",), allow_changes=True, stream="orders")).data
    assert data["allowChanges"] is True
    assert data["applications"] == ["billing"]
    assert (data["stream"], data["csrf"], data["region"]) == ("orders", "csrf", "eu-west-1")


def test_applications_and_shards_are_listed() -> None:
    assert [one["name"] for one in get("/api/applications").data["applications"]] == ["billing"]
    assert len(get("/api/stream?name=orders").data["shards"]) == len(GeneratedFleet(20, 3).shards)


def test_a_page_gets_events_and_leases() -> None:
    async def test() -> None:
        one = backend()
        app = app_of(one)
        unread = await send(app, "GET", "/api/applications/billing/lease?key=x")
        assert unread.status == 404
        async with stream(app, "/api/applications/billing/events") as events:
            await settled()
            view = one.watches["billing"].tick()
            name, data = await events.next()
            assert name == "picture"
            assert data["head"]["application"] == "billing"
            found = await send(app, "GET", f"/api/applications/billing/lease?key={view.leases[0].lease_key}")
            assert found.data["lease"]["lease_key"] == view.leases[0].lease_key
            assert found.data["history"]["owners"][0]["owner"] == view.leases[0].owner

    asyncio.run(test())


def test_a_page_gets_the_past() -> None:
    async def test() -> None:
        one = backend()
        app = app_of(one)
        async with stream(app, "/api/applications/billing/events") as events:
            await settled()
            views = [one.watches["billing"].tick() for _ in range(40)]
            await events.next()
        then = views[20]
        at = f"at={then.at:.1f}"
        past = (await send(app, "GET", f"/api/applications/billing/past?{at}")).data
        assert past["head"]["at"] == then.at
        assert past["leases"]["key"] == [lease.lease_key for lease in then.leases]
        key = then.leases[3].lease_key
        found = (await send(app, "GET", f"/api/applications/billing/lease?key={key}&{at}&span=600")).data
        assert (found["at"], found["lease"]["owner"]) == (then.at, then.leases[3].owner)
        assert found["history"]["samples"][-1]["at"] <= then.at
        course = (await send(app, "GET", "/api/applications/billing/course?span=3600")).data
        assert (course["first"], course["end"]) == (views[0].at, views[-1].at)
        assert course["steps"][-1]["worst_lag_millis"] > 60_000
        report = (
            await send(app, "GET", f"/api/applications/billing/report?{at}&key={key}&link=http://x/")
        ).data["text"]
        assert "- <http://x/>" in report
        assert "account 123456789012, eu-west-1" in report
        now = (await send(app, "GET", "/api/applications/billing/report")).data["text"]
        assert now != report
        for path in ("past?at=5", f"lease?key={key}&at=5", "report?at=5"):
            assert (await send(app, "GET", f"/api/applications/billing/{path}")).status == 404
        for path in (
            "past?at=-5",
            "past?at=1e9",
            "past?at=nan",
            "course?span=0",
            "course?span=604801",
            "lease?span=x",
        ):
            assert (await send(app, "GET", f"/api/applications/billing/{path}")).status == 400

    asyncio.run(test())


def test_hostile_ids_and_records_stay_data() -> None:
    fleet = GeneratedFleet(20, 3, hostile=True)
    reply = get(RECORDS, app_of(backend(billing=fleet)))
    assert reply.headers["content-type"] == "application/json"
    assert any(record["text"] == HOSTILE for record in reply.data["records"])

    async def test() -> None:
        one = backend(billing=fleet)
        async with stream(app_of(one), "/api/applications/billing/events") as events:
            await settled()
            one.watches["billing"].tick()
            _, data = await events.next()
            assert any(HOSTILE in owner for owner in data["owners"]["id"])

    asyncio.run(test())


@pytest.mark.parametrize("limit", ["0", "-1", "ten", "1e9", "99999", "1" * 5_000])
def test_a_wrong_limit_is_named(limit: str) -> None:
    reply = get(f"{RECORDS}&limit={limit}")
    assert reply.status == 400
    assert "limit" in reply.data["error"]["message"]


def test_a_failed_call_is_told() -> None:
    reply = get("/api/records?stream=orders&shard=s&position=at:0")
    assert (reply.status, reply.data["error"]["code"]) == (502, "call-failed")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (AwsConfigError("no credentials"), 502, "credentials"),
        (ResourceNotFoundError("no stream"), 404, "missing"),
        (EndpointUnreachableError("refused"), 502, "unreachable"),
        (ThrottledError("slow down"), 502, "call-failed"),
        (KinesisSdkError("unsafe"), 409, "refused"),
    ],
)
def test_errors_have_codes(error: Exception, status: int, code: str) -> None:
    assert describe_error(error)[:2] == (status, code)


def test_an_unforeseen_error_shows_no_data(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = backend()

    data = "remotsuc"[::-1]  # no line of code contains it

    def fail(**_: object) -> None:
        raise RuntimeError(data)

    monkeypatch.setattr(one, "records", fail)
    with caplog.at_level(logging.DEBUG):
        try:
            reply = get(RECORDS, app_of(one))
        except RuntimeError:
            raise AssertionError("the error reaches the server") from None
    assert reply.status == 500
    assert b"customer" not in reply.body
    assert "RuntimeError" in caplog.text
    assert "customer" not in caplog.text


def test_payloads_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert get(RECORDS).status == 200
    assert "881" not in caplog.text
    assert "customer" not in caplog.text


PLAN = {"operation": "rewind", "leases": ["shardId-000000000001"], "to": "-15m"}


def test_a_read_only_console_shows_a_change_and_cannot_make_it() -> None:
    one = backend()
    app = app_of(one)
    plan = post("/api/applications/billing/plans", PLAN, app).data
    assert plan["id"] is None
    assert plan["command"].startswith("kinesis-sdk leases rewind billing")
    assert "IF leaseCounter = 18291" in plan["writes"][0]["lines"]
    assert post("/api/plans/anything/run", {}, app).status == 403
    assert one.made == []


def test_a_change_is_shown_made_once_and_its_outcome_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "_spawn", lambda work: work())
    one = backend()
    app = app_of(one, allow_changes=True)
    plan = post("/api/applications/billing/plans", PLAN, app).data
    assert one.made == []
    assert get(f"/api/plans/{plan['id']}", app).data["state"] == "planned"
    assert post(f"/api/plans/{plan['id']}/run", {}, app).status == 202
    assert post(f"/api/plans/{plan['id']}/run", {}, app).status == 409
    state = get(f"/api/plans/{plan['id']}", app).data
    assert state["state"] == "done"
    assert "Noticed after 1.3 s" in state["outcome"]["text"]
    assert len(one.made) == 1
    assert one.watches["billing"].refreshed


def test_changes_need_the_token_of_the_page() -> None:
    one = backend()
    app = app_of(one, allow_changes=True)
    body = json.dumps(PLAN).encode()
    for headers in ({}, {**CHANGE, CSRF_HEADER: "guess"}, {**CHANGE, "origin": "http://evil.example"}):
        assert request(app, "POST", "/api/applications/billing/plans", headers, body).status == 403
    assert request(app, "GET", "/api/applications/billing/plans", CHANGE).status == 405


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'"x"', b"{" + b" " * 70_000 + b"}", b'{"a":' * 10_000]
)
def test_a_body_that_is_no_request_is_rejected(body: bytes) -> None:
    reply = request(app_of(allow_changes=True), "POST", "/api/applications/billing/plans", CHANGE, body)
    assert (reply.status, reply.data["error"]["code"]) == (400, "invalid")


def test_applications_that_no_page_shows_make_room() -> None:
    async def test() -> None:
        one = GeneratedBackend({f"app-{n}": GeneratedFleet(4, 1) for n in range(40)})
        app = app_of(one)
        for n in range(40):
            async with stream(app, f"/api/applications/app-{n}/events"):
                await asyncio.sleep(0)
        assert len(one.watches) == 40
        deadline = time.monotonic() + 60
        while sum(watch.stops > 0 for watch in one.watches.values()) < 8:
            assert time.monotonic() < deadline
            await asyncio.sleep(0)

    asyncio.run(test())


def test_the_list_costs_no_read_of_a_table_and_the_overview_reads_each_once() -> None:
    async def test() -> None:
        one = backend(billing=GeneratedFleet(20, 3), other=GeneratedFleet(4, 1, application="other"))
        app = app_of(one)
        assert (await send(app, "GET", "/api/overview?read=1")).data["total"] == 0, "nothing was found yet"
        await send(app, "GET", "/api/applications")
        assert (await send(app, "GET", "/api/overview")).data["applications"] == []
        assert (one.looks, one.watches) == ([], {})
        await send(app, "GET", "/api/overview?read=1")
        deadline = time.monotonic() + 60
        while (state := (await send(app, "GET", "/api/overview")).data)["reading"]:
            assert time.monotonic() < deadline
        assert one.looks == [("billing", "other")]
        assert (state["done"], state["total"]) == (2, 2)
        assert {found["application"] for found in state["applications"]} == {"billing", "other"}
        async with stream(app, "/api/applications/billing/events") as events:
            await settled()
            view = one.watches["billing"].tick()
            await events.next()
        newer = (await send(app, "GET", "/api/overview")).data["applications"]
        (billing,) = (found for found in newer if found["application"] == "billing")
        assert (billing["at"], billing["totals"]["worst_lag_millis"]) == (
            view.at,
            view.totals.worst_lag_millis,
        )

    asyncio.run(test())
