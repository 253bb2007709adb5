"""Signature Version 4, checked by the book."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any
from urllib.parse import urlsplit


def signer_of(request: Any, secret: str = "secret") -> str:
    """Check SigV4 of what arrived, by the book and not by botocore, and return the access key."""
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    url = urlsplit(request.url)
    headers.setdefault("host", url.netloc)
    fields = dict(part.strip().split("=", 1) for part in headers["authorization"].split(" ", 1)[1].split(","))
    _, day, region, service, terminator = fields["Credential"].split("/")
    signed = fields["SignedHeaders"]
    canonical = "\n".join(
        [
            request.method,
            url.path or "/",
            url.query,
            *(f"{name}:{' '.join(headers[name].split())}" for name in signed.split(";")),
            "",
            signed,
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    scope = f"{day}/{region}/{service}/{terminator}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, terminator):
        key = hmac.digest(key, part.encode(), "sha256")
    assert fields["Signature"] == hmac.digest(key, text.encode(), "sha256").hex()
    return fields["Credential"].split("/")[0]
