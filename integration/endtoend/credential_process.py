"""A ``credential_process`` for botocore: credentials of the fake that expire before botocore expects it.

botocore starts to refresh credentials 15 minutes before their reported expiry. This reports an expiry 15 minutes and one
second too late. In that second every call is rejected with ExpiredTokenException, as with a wrong clock.

Run as a script, with the fake's endpoint and the seconds for which the credentials are valid.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from datetime import datetime, timedelta

_REFRESHED_BEFORE = timedelta(minutes=15)
_TOO_LATE = timedelta(seconds=1)


def main() -> None:
    """Print credentials in botocore's format."""
    endpoint, seconds = sys.argv[1:]
    body = json.dumps({"seconds": float(seconds)}).encode()
    with urllib.request.urlopen(f"{endpoint}/_fake/credentials", data=body, timeout=60) as answer:
        issued = json.load(answer)
    expires = datetime.fromisoformat(issued["Expiration"]) + _REFRESHED_BEFORE + _TOO_LATE
    print(json.dumps({**issued, "Version": 1, "Expiration": expires.isoformat()}))


if __name__ == "__main__":
    main()
