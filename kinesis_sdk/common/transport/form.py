"""A request of boto3 that serves as the form of further requests of the same operation to the same endpoint.

boto3 computes the same URL, headers and kind of signature for each call. A form keeps these. Only the body, the date,
the credentials and the random id of the call differ.

A form is made only from a request that it reproduces: with the date and the body of that request, it must compute boto3's
signature. So a request that is signed in any other way, now or in a later botocore, has no form.
"""

from __future__ import annotations

import hmac
import os
import re
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/, ]+)/\d{8}/(?P<region>[^/, ]+)/(?P<service>[^/, ]+)/aws4_request, "
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

_CONSTANT = frozenset({"x-amz-target", "content-type", "user-agent", "amz-sdk-request"})
"""Headers that are equal for each first attempt."""

_PER_REQUEST = frozenset(
    {
        "x-amz-date",
        "x-amz-security-token",
        "x-amzn-trace-id",
        "authorization",
        "amz-sdk-invocation-id",
        "content-length",
    }
)

LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"
"""Environment variable of AWS Lambda, where each request has a header with the trace of its invocation."""


class SignedRequest:
    """One request, ready to be sent by the session (`prepared`) or on a connection (`head` and body)."""

    __slots__ = ("_form", "body", "url", "varying")

    def __init__(self, form: RequestForm, varying: dict[str, str], body: bytes) -> None:
        self._form = form
        self.url: str = form.url
        self.varying: dict[str, str] = varying  # headers that differ between requests of the form
        self.body: bytes = body

    @property
    def is_plain(self) -> bool:
        """Whether `head` can write the headers: a line break in a token would start another header."""
        return all(value.isascii() and value.isprintable() for value in self.varying.values())

    @property
    def head(self) -> bytes:
        """Request line and headers, up to the empty line."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in self.varying.items()])
        return b"%b%b\r\n" % (self._form.head, lines.encode("latin-1"))

    def prepared(self) -> Any:
        """Return the request for botocore's HTTP session."""
        from botocore.awsrequest import AWSPreparedRequest

        # A plain dict is enough for the session, and a sixth faster than botocore's case-insensitive headers.
        headers: Any = {**self._form.headers, **self.varying}
        return AWSPreparedRequest("POST", self.url, headers, self.body, False)


class RequestForm:
    """Makes signed requests. Thread-safe.

    The client's signer supplies the credentials, and refreshes them as for boto3's own requests.
    """

    __slots__ = (
        "_access_key",
        "_before_date",
        "_key",
        "_region",
        "_service",
        "_signer",
        "_target",
        "head",
        "headers",
        "url",
    )

    def __init__(
        self, *, url: str, headers: dict[str, str], signer: Any, service: str, region: str, access_key: str
    ) -> None:
        lower = {name.lower(): value for name, value in headers.items()}
        parts = urlsplit(url)
        host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS[parts.scheme])
        self.url: str = url
        self.headers: dict[str, str] = headers
        sent = {"Host": host, "Accept-Encoding": "identity", **headers}  # the HTTP client adds the first two
        lines = "".join([f"{name}: {value}\r\n" for name, value in sent.items()])
        self.head: bytes = f"POST / HTTP/1.1\r\n{lines}".encode("latin-1")
        self._signer = signer
        self._service = service
        self._region = region
        self._access_key = access_key
        self._before_date = f"POST\n/\n\ncontent-type:{lower['content-type']}\nhost:{host}\nx-amz-date:"
        self._target = lower["x-amz-target"]
        self._key: tuple[str, str, bytes] | None = None

    @classmethod
    def of(cls, request: Any, signer: Any) -> RequestForm | None:
        """Return the form of boto3's first attempt of a call; the signer is the client's.

        None if the request has anything unusual: a path, another header, another kind of signature, a timeout of its own, or a
        body that is not bytes.
        """
        given = {name: _text(value) for name, value in request.headers.items()}
        lower = {name.lower(): value for name, value in given.items()}
        scope = _AUTHORIZATION.match(lower.get("authorization", ""))
        parts = urlsplit(request.url)
        if (
            scope is None
            or not _CONSTANT | _PER_REQUEST >= lower.keys() >= {"content-type", "x-amz-target", "x-amz-date"}
            or "attempt=1" not in lower.get("amz-sdk-request", "")
            or request.method != "POST"
            or request.stream_output
            or type(request.body) is not bytes
            or (getattr(request, "context", None) or {}).get("read_timeout") is not None
            or parts.scheme not in _DEFAULT_PORTS
            or parts.path not in {"", "/"}
            or parts.query
            or "@" in parts.netloc
        ):
            return None
        form = cls(
            url=request.url,
            headers={name: value for name, value in given.items() if name.lower() in _CONSTANT},
            signer=signer,
            service=scope["service"],
            region=scope["region"],
            access_key=scope["key"],
        )
        again = form._authorization(form._credentials(), lower["x-amz-date"], request.body)
        return form if again == lower["authorization"] else None

    def of_type(self, content_type: str) -> RequestForm:
        """Return the form of the same request with a body of another type."""
        return RequestForm(
            url=self.url,
            headers={
                name: content_type if name.lower() == "content-type" else value
                for name, value in self.headers.items()
            },
            signer=self._signer,
            service=self._service,
            region=self._region,
            access_key=self._access_key,
        )

    def request(self, body: bytes, date: str, invocation_id: str) -> SignedRequest | None:
        """Return a signed request, or None if the access key has changed since the form was made.

        The date is the time of the signature in UTC, such as ``20260801T100000Z``; the invocation id is random.

        Raises:
            BotoCoreError: If the credentials have expired and cannot be refreshed.
        """
        credentials = self._credentials()
        if credentials.access_key != self._access_key:
            return None
        varying = {"X-Amz-Date": date, "amz-sdk-invocation-id": invocation_id}
        if credentials.token:
            varying["X-Amz-Security-Token"] = credentials.token
        varying["Authorization"] = self._authorization(credentials, date, body)
        varying["Content-Length"] = str(len(body))
        if LAMBDA in os.environ:
            varying.update(_trace())
        return SignedRequest(self, varying, body)

    def _credentials(self) -> Any:
        # By its public interface, the signer refreshes its credentials and returns an immutable copy.
        return self._signer.get_auth_instance(self._service, self._region, "v4").credentials

    def _authorization(self, credentials: Any, date: str, body: bytes) -> str:
        """Return the ``Authorization`` header by Signature Version 4."""
        if credentials.token:
            signed = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
            token = f"x-amz-security-token:{credentials.token}\n"
        else:
            signed = "content-type;host;x-amz-date;x-amz-target"
            token = ""
        canonical = (
            f"{self._before_date}{date}\n{token}x-amz-target:{self._target}\n"
            f"\n{signed}\n{sha256(body).hexdigest()}"
        )
        day = date[:8]
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        key = self._key_of(credentials.secret_key, day)
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        return (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={signed}, "
            f"Signature={signature}"
        )

    def _key_of(self, secret: str, day: str) -> bytes:
        """Return the signing key of a day, kept from the last call if possible."""
        kept = self._key
        if kept is None or kept[0] != secret or kept[1] != day:
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            kept = self._key = (secret, day, key)
        return kept[2]


def _trace() -> dict[str, str]:
    """Return the header that names the trace of the current invocation of a Lambda function, if there is one."""
    from botocore.handlers import add_recursion_detection_header

    params: dict[str, Any] = {"headers": {}}
    add_recursion_detection_header(params)
    return {name: _text(value) for name, value in params["headers"].items()}


def _text(value: Any) -> str:
    # The HTTP client encodes text as Latin-1, so each byte remains what boto3 sent.
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
