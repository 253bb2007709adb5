"""Change records: the records of a DynamoDB stream, each about one change of an item.

Between the response and the handler, a change is a `KinesisRecord` whose data is the record as JSON, with blobs in base64
and the time in epoch seconds. The JSON takes a fraction of the memory of the parsed record, so a worker's byte budget
means the same for Kinesis and DynamoDB, and no code in between depends on the source. A `ChangeRecord` parses it on first use.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from kinesis_sdk.common.records import UserRecord

IMAGES = ("Keys", "NewImage", "OldImage")
"""Members of a change that contain attributes."""


def encode_change(record: Mapping[str, Any]) -> bytes:
    """Return a record of GetRecords, in boto3's types, as JSON.

    Args:
        record: The record, whose blobs are bytes and whose time is a datetime.

    Raises:
        TypeError: If a value has a type that boto3 does not return.
    """
    return json.dumps(record, default=_plain, separators=(",", ":"), ensure_ascii=False).encode()


def encode_item(item: Mapping[str, Any]) -> str:
    """Return an item, or its key, as text with sorted names: equal for equal items, different for different items.

    Args:
        item: Typed attribute values by name (``{"id": {"S": "a"}}``); blobs are bytes, or text that is already base64.
    """
    return json.dumps(item, default=_plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def decode_item(text: str) -> dict[str, Any]:
    """Return the item that `encode_item` wrote.

    Args:
        text: A text that `encode_item` returned.

    Raises:
        ValueError: If the text is not an item in this form.
    """
    try:
        return {name: _attribute(value) for name, value in json.loads(text).items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not an item in DynamoDB's wire form: {text[:60]!r}") from error


def _plain(value: object) -> object:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"a stream record cannot hold {type(value).__name__}")


def _attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attribute value with its blobs as bytes."""
    ((kind, content),) = value.items()
    if kind == "B":
        return {kind: base64.b64decode(content)}
    if kind == "BS":
        return {kind: [base64.b64decode(element) for element in content]}
    if kind == "M":
        return {kind: {name: _attribute(member) for name, member in content.items()}}
    if kind == "L":
        return {kind: [_attribute(member) for member in content]}
    return {kind: content}


class ChangeRecord(UserRecord):
    """One change of an item of a table. The parts of a change are decoded when they are first read.

    A change has the fields of a `UserRecord` as well: ``data`` is the record as JSON, ``partition_key`` the key of the
    item as text, ``approximate_arrival_timestamp`` the time of the change.
    """

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The record as boto3 returns it from GetRecords, with typed attribute values (``{"S": "a"}``)."""
        record: dict[str, Any] = json.loads(self.data)
        change: dict[str, Any] = record.get("dynamodb") or {}
        for part in IMAGES:
            if part in change:
                change[part] = {name: _attribute(value) for name, value in change[part].items()}
        created = change.get("ApproximateCreationDateTime")
        if created is not None:
            change["ApproximateCreationDateTime"] = datetime.fromtimestamp(created, timezone.utc)
        return record

    def _image(self, part: str) -> dict[str, Any] | None:
        from boto3.dynamodb.types import TypeDeserializer

        image = self.raw["dynamodb"].get(part)
        if image is None:
            return None
        deserialize = TypeDeserializer().deserialize
        return {name: deserialize(value) for name, value in image.items()}

    @property
    def event_id(self) -> str:
        """Unique id of the change."""
        return str(self.raw["eventID"])

    @property
    def event_name(self) -> str:
        """``INSERT``, ``MODIFY`` or ``REMOVE``."""
        return str(self.raw["eventName"])

    @cached_property
    def keys(self) -> dict[str, Any]:
        """Primary key of the item, in Python's types: text, `decimal.Decimal` or `boto3.dynamodb.types.Binary`."""
        return self._image("Keys") or {}

    @cached_property
    def new_image(self) -> dict[str, Any] | None:
        """The item after the change, in Python's types; None if the item was removed, or if the view type leaves it out."""
        return self._image("NewImage")

    @cached_property
    def old_image(self) -> dict[str, Any] | None:
        """The item before the change, in Python's types; None if the item is new, or if the view type leaves it out."""
        return self._image("OldImage")

    @property
    def approximate_creation_time(self) -> datetime | None:
        """Time of the change, in UTC, rounded down to a second."""
        return self.approximate_arrival_timestamp

    @property
    def view_type(self) -> str | None:
        """View type of the stream: ``KEYS_ONLY``, ``NEW_IMAGE``, ``OLD_IMAGE`` or ``NEW_AND_OLD_IMAGES``."""
        view_type: str | None = self.raw["dynamodb"].get("StreamViewType")
        return view_type

    @property
    def is_expiry(self) -> bool:
        """Whether DynamoDB removed the item because its time to live had ended."""
        identity = self.raw.get("userIdentity") or {}
        principal = identity.get("PrincipalId", identity.get("principalId"))
        return bool(principal == "dynamodb.amazonaws.com")
