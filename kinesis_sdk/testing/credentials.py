"""Access keys of the fake account: permanent keys, and temporary keys with a session token that expires.

Signatures are not checked. An access key id that begins with ``ASIA`` is temporary, as on AWS: it needs the session token
with which it was issued, and that token must not have expired.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection
from datetime import datetime, timezone

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.errors import AwsError

_TEMPORARY = "ASIA"


class Credentials:
    """The access keys of an account. Thread-safe.

    Only `access_keys` are valid as permanent access key ids; None accepts every id.
    """

    def __init__(self, clock: Clock, access_keys: Collection[str] | None = None) -> None:
        self.access_keys: frozenset[str] | None = None if access_keys is None else frozenset(access_keys)
        self._clock = clock
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._issued: dict[str, tuple[str, float]] = {}

    def issue(self, seconds: float) -> dict[str, str]:
        """Create temporary credentials that are valid for `seconds`.

        Returns ``AccessKeyId``, ``SecretAccessKey``, ``SessionToken`` and ``Expiration`` (ISO 8601), which are the names in STS.
        Raises ValueError if `seconds` is not positive.
        """
        if seconds <= 0:
            raise ValueError(f"seconds must be above 0, not {seconds!r}")
        expires = self._clock.time() + seconds
        number = next(self._numbers)
        key, token = f"{_TEMPORARY}FAKE{number:012d}", f"fake-session-token-{number}"
        with self._lock:
            self._issued[key] = (token, expires)
        return {
            "AccessKeyId": key,
            "SecretAccessKey": "fake-secret",
            "SessionToken": token,
            "Expiration": datetime.fromtimestamp(expires, timezone.utc).isoformat(),
        }

    def check(self, access_key: str | None, session_token: str | None) -> None:
        """Check the credentials of a call; the access key is None for an unsigned call.

        Raises ExpiredTokenException, or UnrecognizedClientException for an unknown key or token.
        """
        if access_key is not None and access_key.startswith(_TEMPORARY):
            with self._lock:
                token, expires = self._issued.get(access_key, (None, 0.0))
            if token is not None and token == session_token:
                if self._clock.time() < expires:
                    return
                raise AwsError(
                    "ExpiredTokenException", "The security token included in the request is expired"
                )
        elif self.access_keys is None or access_key in self.access_keys:
            return
        raise AwsError(
            "UnrecognizedClientException", "The security token included in the request is invalid."
        )
