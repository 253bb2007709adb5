"""Access to the console, decided from the headers of a request alone.

There are four threats, each with a defence:

- Another machine connects: the console listens on localhost, and on any other address only with a token.
- A page of another site reads or changes something through the user's browser: browsers do not let it read responses, a change
  needs a header that only our page knows, and a request that the browser marks as cross-site is rejected.
- The name of another site suddenly resolves to this machine (DNS rebinding), so that the site's page is treated as ours: the ``Host``
  header must be localhost, a literal address, or a name that the user gave.
- A record, a partition key or a worker id contains markup: the page sets text only, and the content security policy allows
  neither inline code nor strings as markup.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

CSRF_HEADER = "x-kinesis-sdk-token"
"""Header of every change; its value is in the page, which other sites cannot read."""

RESPONSE_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Headers of every response."""

_SAFE_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Access to one console.

    Attributes:
        host_names: Names, in lower case, that the ``Host`` header may have besides localhost and literal addresses.
        token: Token that each request must prove to have; None if every user of this machine may read.
        csrf_token: Value of `CSRF_HEADER` in changes.
        cookie_name: Name of the cookie that proves the token. The name contains the port, because browsers send cookies to all ports.
    """

    host_names: frozenset[str] = frozenset()
    token: str | None = field(default=None, repr=False)
    csrf_token: str = field(repr=False)
    cookie_name: str = "kinesis_sdk_ui"

    @property
    def cookie_value(self) -> str:
        """Value of the cookie: not the token itself, so that a stolen cookie file does not reveal it."""
        return hmac.new((self.token or "").encode(), b"kinesis_sdk ui cookie", hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Rejection:
    """A rejected request: its HTTP status, and the message for the user."""

    status: int
    message: str


def reject(policy: Policy, method: str, path: str, headers: Mapping[str, str]) -> Rejection | None:
    """Return the reason why a request is rejected; None if it is accepted. The names of ``headers`` are in lower case."""
    host = headers.get("host", "")
    if not is_own_host(policy, host):
        return Rejection(
            421,
            "This console does not serve the host name of your address. Use localhost or the machine's IP address, "
            "or start it with --allow-host NAME.",
        )
    if policy.token is not None and not knows_token(policy, headers):
        return Rejection(401, "Open the address that the command printed: it contains the token.")
    site = headers.get("sec-fetch-site", "")
    if path != "/" and site not in ("", "same-origin", "none"):
        return Rejection(403, "A page of another site asked for this.")
    if method in _SAFE_METHODS:
        return None
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return Rejection(403, "A page of another origin asked for this.")
    if not same_text(headers.get(CSRF_HEADER, ""), policy.csrf_token):
        return Rejection(403, "The page is older than this console. Reload it.")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return Rejection(415, "Changes are requested as application/json.")
    return None


def is_own_host(policy: Policy, host: str) -> bool:
    """Return whether a ``Host`` header names this console, and not a site that resolves to this machine.

    A literal address cannot be rebound to another machine, so every literal address is accepted.
    """
    name = host_name(host)
    if name is None:
        return False
    return name == "localhost" or name in policy.host_names or is_address(name)


def host_name(host: str) -> str | None:
    """Return the name in a ``Host`` header, without the port and in lower case; None if the header is invalid."""
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?", host.lower())
    return (found[1] or found[2]) if found else None


def is_address(name: str) -> bool:
    """Return whether a name is a literal IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address that a server listens on."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def knows_token(policy: Policy, headers: Mapping[str, str]) -> bool:
    """Return whether a request has the cookie of the token, or the token as a bearer token."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and is_token(policy, value):
        return True
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(policy.cookie_name)
    except CookieError:
        return False
    return morsel is not None and same_text(morsel.value, policy.cookie_value)


def is_token(policy: Policy, text: str) -> bool:
    """Return whether a text is the token, in constant time."""
    return policy.token is not None and same_text(text, policy.token)


def same_text(one: str, other: str) -> bool:
    """Compare two texts in a time that is independent of the first difference."""
    return hmac.compare_digest(
        one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape")
    )
