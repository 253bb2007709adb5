"""A request of boto3 as a template for further requests of the same operation to the same endpoint.

boto3 computes the same URL, headers and form of the signature for each call. A template keeps them. What differs
from call to call is the body, the date, the credentials, and the random id of the call.

A template is only made from a request that it reproduces: with the date and the body of that request, it must compute the
signature that boto3 computed. So a request that is signed in any other way, now or in a later botocore, has no template.
"""

from __future__ import annotations

import re
from hashlib import sha256
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/, ]+)/\d{8}/(?P<region>[^/, ]+)/(?P<service>[^/, ]+)/aws4_request, "
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

_CONSTANT = frozenset({"x-amz-target", "content-type", "user-agent", "amz-sdk-request"})
"""Headers that are the same for each first attempt."""

_PER_REQUEST = frozenset(
    {"x-amz-date", "x-amz-security-token", "authorization", "amz-sdk-invocation-id", "content-length"}
)


class RequestTemplate:
    """Makes signed requests. Immutable.

    The credentials come from the client's signer, which refreshes them as for boto3's own requests.
    """

    __slots__ = (
        "_access_key",
        "_before_date",
        "_headers",
        "_region",
        "_service",
        "_signer",
        "_target",
        "_url",
    )

    def __init__(
        self, *, url: str, headers: dict[str, str], signer: Any, service: str, region: str, access_key: str
    ) -> None:
        lower = {name.lower(): value for name, value in headers.items()}
        parts = urlsplit(url)
        host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS[parts.scheme])
        self._url = url
        self._headers = headers
        self._signer = signer
        self._service = service
        self._region = region
        self._access_key = access_key
        self._before_date = f"POST\n/\n\ncontent-type:{lower['content-type']}\nhost:{host}\nx-amz-date:"
        self._target = lower["x-amz-target"]

    @classmethod
    def of(cls, request: Any, signer: Any) -> RequestTemplate | None:
        """Return the template of a request.

        Args:
            request: ``AWSPreparedRequest`` of the first attempt of a call.
            signer: ``RequestSigner`` of the client.

        Returns:
            None if the request has anything unusual: a path, another header, another form of signature, a timeout of its
            own, or a body that is not bytes.
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
        template = cls(
            url=request.url,
            headers={name: value for name, value in given.items() if name.lower() in _CONSTANT},
            signer=signer,
            service=scope["service"],
            region=scope["region"],
            access_key=scope["key"],
        )
        again = template._authorization(template._credentials(), lower["x-amz-date"], request.body)
        return template if again == lower["authorization"] else None

    def request(self, body: bytes, date: str, invocation_id: str) -> Any:
        """Return a signed request, or None if the access key has changed since the template was made.

        boto3 may resolve another endpoint for another account, and names the source of the credentials in its user agent.

        Args:
            body: Body of the request.
            date: Time of the signature, UTC: ``20260801T100000Z``.
            invocation_id: Random id of the call.

        Raises:
            BotoCoreError: If the credentials have expired and cannot be refreshed.
        """
        from botocore.awsrequest import AWSPreparedRequest

        credentials = self._credentials()
        if credentials.access_key != self._access_key:
            return None
        headers: Any = {**self._headers, "X-Amz-Date": date, "amz-sdk-invocation-id": invocation_id}
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
        headers["Authorization"] = self._authorization(credentials, date, body)
        headers["Content-Length"] = str(len(body))
        # A plain dict is enough for the session, and a sixth faster than botocore's case-insensitive headers.
        return AWSPreparedRequest("POST", self._url, headers, body, False)

    def _credentials(self) -> Any:
        # By its public interface, the signer refreshes its credentials and returns an immutable copy.
        return self._signer.get_auth_instance(self._service, self._region, "v4").credentials

    def _authorization(self, credentials: Any, date: str, body: bytes) -> str:
        """Return the ``Authorization`` header; botocore computes the signature."""
        from botocore.auth import SigV4Auth

        signer = SigV4Auth(credentials, self._service, self._region)
        moment: Any = SimpleNamespace(context={"timestamp": date})
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
        signature = signer.signature(signer.string_to_sign(moment, canonical), moment)
        return f"AWS4-HMAC-SHA256 Credential={signer.scope(moment)}, SignedHeaders={signed}, Signature={signature}"


def _text(value: Any) -> str:
    # The HTTP client encodes text as Latin-1, so each byte remains what boto3 sent.
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
