"""Rejection of responses that were cut off in transit.

botocore does not compare the length of a response with the length that its header declares. botocore treats the part that
arrived as the whole response, and a truncated JSON document becomes a result without members. Most calls notice that a member is
missing. Calls of DynamoDB do not notice it: a truncated Scan reads as "no items" and a truncated GetItem as "no such item",
and a worker that trusted this result would start the stream from the beginning. The hook of this module rejects such responses with
botocore's error for truncated responses. The call is then retried like a call without a response.
"""

from __future__ import annotations

import json
from typing import Any

_HOOK = "kinesis-sdk-truncated-responses"


def reject_truncated_responses(client: Any) -> None:
    """Make a boto3 client reject truncated responses.

    Calling it again for the same client has no effect. Objects that are not boto3 clients are not changed.
    """
    from botocore.client import BaseClient

    # Not isinstance: a mock with a spec would pass.
    if issubclass(type(client), BaseClient):
        client.meta.events.register_first("before-parse", _before_parse, _HOOK)


def _before_parse(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Handle botocore's event ``before-parse``: compare the body with its declared length, or check that it is JSON."""
    from botocore.exceptions import IncompleteReadError

    body, headers = response_dict["body"], response_dict["headers"]
    if not isinstance(body, bytes) or "transfer-encoding" in headers:
        return  # event streams have checksums, chunked bodies end with an empty chunk
    declared = str(headers.get("content-length") or "").strip()
    if declared.isdecimal():
        if len(body) < int(declared):
            raise IncompleteReadError(actual_bytes=len(body), expected_bytes=int(declared))
    elif (
        _is_believed_when_empty(operation_model)
        and response_dict["status_code"] == 200
        and not _is_json(body)
    ):
        # The header itself may have been cut off. Stubs and mocks send no length either, but a complete document.
        unknown: Any = "an unknown number of"  # botocore only formats it into the message
        raise IncompleteReadError(actual_bytes=len(body), expected_bytes=unknown)


def _is_believed_when_empty(operation_model: Any) -> bool:
    """Return whether callers accept a result without members. Callers of Kinesis know which members must be present."""
    return bool(operation_model.service_model.service_name == "dynamodb")


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
