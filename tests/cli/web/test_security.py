from __future__ import annotations

import pytest

from kinesis_sdk.cli.web.security import (
    CSRF_HEADER,
    RESPONSE_HEADERS,
    Policy,
    host_name,
    is_loopback,
    is_own_host,
    reject,
)

POLICY = Policy(csrf_token="csrf")
SECRET = Policy(csrf_token="csrf", token="correct horse battery", cookie_name="c_8787")
CHANGE = {"host": "localhost:8787", CSRF_HEADER: "csrf", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("localhost:8787", True),
        ("LOCALHOST:8787", True),
        ("127.0.0.1:8787", True),
        ("[::1]:8787", True),
        ("192.168.7.4:8787", True),
        ("console.internal:8787", True),
        ("", False),
        ("evil.example:8787", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example#localhost", False),
        ("localhost@evil.example", False),
        ("localhost:8787:1", False),
        ("localhost\r\nx: y", False),
    ],
)
def test_only_own_names_and_addresses_are_served(host: str, own: bool) -> None:
    assert is_own_host(Policy(csrf_token="x", host_names=frozenset({"console.internal"})), host) is own
    assert (reject(POLICY, "GET", "/", {"host": host}) is None) is (own and "internal" not in host)


def test_a_rebound_name_is_misdirected() -> None:
    found = reject(POLICY, "GET", "/api/applications", {"host": "evil.example:8787"})
    assert found is not None
    assert found.status == 421
    assert "--allow-host" in found.message


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("box", False),
    ],
)
def test_which_addresses_need_a_token(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_a_token_is_needed_everywhere_if_there_is_one() -> None:
    for path in ("/", "/assets/app.css", "/api/session"):
        found = reject(SECRET, "GET", path, {"host": "localhost"})
        assert found is not None
        assert found.status == 401


@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ({"cookie": f"c_8787={SECRET.cookie_value}"}, True),
        ({"cookie": f"other=1; c_8787={SECRET.cookie_value}"}, True),
        ({"authorization": "Bearer correct horse battery"}, True),
        ({"cookie": "c_8787=correct horse battery"}, False),
        ({"cookie": f"c_8788={SECRET.cookie_value}"}, False),
        ({"cookie": f"c_8787={Policy(csrf_token='', token='another').cookie_value}"}, False),
        ({"cookie": "\x00;;;==="}, False),
        ({"authorization": "Bearer "}, False),
        ({"authorization": "Basic correct horse battery"}, False),
    ],
)
def test_the_cookie_or_the_token_itself_opens(headers: dict[str, str], known: bool) -> None:
    assert (reject(SECRET, "GET", "/api/session", {"host": "localhost", **headers}) is None) is known


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, None),
        ({"origin": "http://localhost:8787"}, None),
        ({"origin": "http://localhost:8788"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, None),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({CSRF_HEADER: "guessed"}, 403),
        ({CSRF_HEADER: ""}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "application/json; charset=utf-8"}, None),
    ],
)
def test_changes_come_from_our_own_page(change: dict[str, str], status: int | None) -> None:
    found = reject(POLICY, "POST", "/api/applications/a/plans", {**CHANGE, **change})
    assert (None if found is None else found.status) == status


def test_another_site_cannot_make_the_browser_read() -> None:
    headers = {"host": "localhost:8787", "sec-fetch-site": "cross-site"}
    found = reject(POLICY, "GET", "/api/records", headers)
    assert found is not None
    assert found.status == 403
    assert reject(POLICY, "GET", "/", headers) is None, "a link to the page is harmless"


def test_neither_code_nor_markup_in_a_text_can_run() -> None:
    policy = RESPONSE_HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "http:" not in policy
    assert "https:" not in policy
    assert RESPONSE_HEADERS["cache-control"] == "no-store"


def test_secrets_are_not_in_a_repr() -> None:
    assert "correct horse" not in repr(SECRET)
    assert "csrf'" not in repr(SECRET)


@pytest.mark.parametrize(
    ("header", "name"), [("[::1]:80", "::1"), ("A.b:1", "a.b"), ("a b", None), ("a:", None)]
)
def test_host_names_are_read_strictly(header: str, name: str | None) -> None:
    assert host_name(header) == name
