"""Meaning of a failed attempt for the stream: nothing was stored for certain, or something may be.

`stored_nothing` is the only place that decides this, for calls that failed as a whole and for rejected entries. A mistake in one
direction repeats a record that is stored, without the mark by which readers would recognize the repetition; a mistake in the other
direction only delays a retry. So whatever is not known to be certain counts as unknown.
"""

from __future__ import annotations

from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    EndpointUnreachableError,
    KinesisSdkError,
    PermanentAwsError,
    ThrottledError,
)

_TIMEOUTS = frozenset({"RequestTimeout", "RequestTimeoutException"})
"""Codes of the service for a request that it did not read to its end, as it says. Its front end may see it differently."""

_NEVER_SENT = frozenset({"CredentialRetrievalError", "MetadataRetrievalError"})
"""Errors of botocore before a request is signed."""

_NO_DOCUMENT = frozenset({"", "Unknown", "ClientError"})
"""Codes of responses without an error document, or with one that was cut off: not the service may have answered. The status as a
code says the same."""

_PROXY = "ProxyConnectionError"
"""With a proxy, urllib3 1.26 reports every broken connection as this, also one that broke after the request was sent."""


def stored_nothing(error: KinesisSdkError) -> bool:
    """Return whether an attempt that ended with this error stored nothing for certain.

    These are certain: throttled; rejected with status 4xx (except 408) and an error document of the service; an entry that
    was rejected with a code which says that the same entry would be rejected again; no connection; no credentials. Everything else
    is not: a timeout, a closed connection, 5xx, an unreadable response, an internal failure of one entry.

    Args:
        error: Error of the PutRecords call, or of one of its entries. An entry has no HTTP status.
    """
    if not isinstance(error, AwsError):
        return False
    if isinstance(error, ThrottledError):
        return True
    if error.status is None:
        if isinstance(error, EndpointUnreachableError):
            return error.code != _PROXY
        return isinstance(error, PermanentAwsError) or error.code in _NEVER_SENT
    if not 400 <= error.status < 500 or error.status == 408 or error.code in _TIMEOUTS:
        return False
    return isinstance(error, AwsConfigError) or not (error.code.isdigit() or error.code in _NO_DOCUMENT)
