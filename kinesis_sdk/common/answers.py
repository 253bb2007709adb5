"""Answers that were cut off on the way.

botocore does not compare an answer's length with what its header declares, and takes what is left for the whole: a JSON
document that breaks off becomes a result without members. For most calls a missing member shows it. For DynamoDB it does
not: a Scan whose answer was cut off says "no items", a GetItem "no such item", and a worker that believes that begins the
stream anew. So clients get a hook that refuses such answers, with botocore's own error for them; the call is then
repeated like one that got no answer.
"""

from __future__ import annotations

import json
from typing import Any

_HOOK = "kinesis-sdk-whole-answer"


def require_whole_answers(client: Any) -> None:
    """Let a boto3 client refuse answers that were cut off; other objects are left alone. May be called again."""
    from botocore.client import BaseClient

    # The type and not isinstance: a mock with a spec says yes to that.
    if issubclass(type(client), BaseClient):
        client.meta.events.register_first("before-parse", _on_answer, _HOOK)


def _on_answer(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """``before-parse``: compare the body with its declared length, or see that it is a document.

    Raises:
        IncompleteReadError: It was cut off.
    """
    from botocore.exceptions import IncompleteReadError

    body, headers = response_dict["body"], response_dict["headers"]
    if not isinstance(body, bytes) or "transfer-encoding" in headers:
        return  # event streams have checksums, chunks a last one
    declared = str(headers.get("content-length") or "").strip()
    if declared.isdecimal():
        if len(body) < int(declared):
            raise IncompleteReadError(actual_bytes=len(body), expected_bytes=int(declared))
    elif _may_mean_nothing(operation_model) and response_dict["status_code"] == 200 and not _is_json(body):
        # The cut may have gone through the header; who sends no length (stubs, mocks) sends a document.
        unknown: Any = "an unknown number of"  # botocore only formats it into the message
        raise IncompleteReadError(actual_bytes=len(body), expected_bytes=unknown)


def _may_mean_nothing(operation_model: Any) -> bool:
    """Whether a result without members would be believed. Of Kinesis's, callers know what has to be there."""
    return bool(operation_model.service_model.service_name == "dynamodb")


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True
