"""The AWS query protocol: form parameters in, XML out. STS and older clients of CloudWatch use it."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from kinesis_sdk.testing.errors import AwsError

_NUMBERS = frozenset(
    {"Value", "StorageResolution", "Sum", "Minimum", "Maximum", "SampleCount", "Values", "Counts"}
)


def parse_query(pairs: dict[str, str]) -> dict[str, Any]:
    """Convert flat parameters to nested values: ``MetricData.member.1.Value=3`` becomes a list of objects."""
    tree: dict[str, Any] = {}
    for name, value in pairs.items():
        branch = tree
        *parts, last = name.split(".")
        for part in parts:
            branch = branch.setdefault(part, {})
            if not isinstance(branch, dict):
                raise AwsError("InvalidParameterValue", f"{name} contradicts another parameter")
        branch[last] = value
    return {name: _plain(name, member) for name, member in tree.items()}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"member"} and isinstance(value["member"], dict):
            members = value["member"]
            try:
                order = sorted(members, key=int)
            except ValueError:
                raise AwsError("InvalidParameterValue", f"{name}: list members are numbered") from None
            return [_plain(name, members[index]) for index in order]
        # The Value of a dimension is text, the Value of a datum a number.
        return {part: member if "Name" in value else _plain(part, member) for part, member in value.items()}
    if name in _NUMBERS:
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _xml(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"<{name}>{_xml(member)}</{name}>" for name, member in value.items())
    if isinstance(value, list):
        return "".join(f"<member>{_xml(member)}</member>" for member in value)
    return escape(str(value))


def render_response(action: str, response: dict[str, Any]) -> bytes:
    """Return a response document."""
    return (
        f"<{action}Response><{action}Result>{_xml(response)}</{action}Result>"
        f"<ResponseMetadata><RequestId>fake</RequestId></ResponseMetadata></{action}Response>"
    ).encode()


def render_error(error: AwsError) -> bytes:
    """Return an error document."""
    document = {"Type": "Sender", "Code": error.code, "Message": error.message}
    return (
        f"<ErrorResponse><Error>{_xml(document)}</Error><RequestId>fake</RequestId></ErrorResponse>".encode()
    )
