"""Identity of a stream: a name, or an ARN, which also names the account and the region; or the ARN of a table's stream."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kinesis_sdk.common.errors import ConfigError

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_ARN = re.compile(
    r"arn:aws[a-z0-9-]*:kinesis:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):stream/(?P<name>[a-zA-Z0-9_.-]{1,128})"
)
_TABLE_STREAM_ARN = re.compile(
    r"arn:aws[a-z0-9-]*:dynamodb:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):"
    r"table/(?P<name>[a-zA-Z0-9_.-]{3,255})/stream/[0-9T:.-]+"
)


@dataclass(frozen=True)
class StreamId:
    """Identity of a stream.

    Attributes:
        name: Stream name; for the stream of a DynamoDB table, the name of the table.
        arn: Stream ARN; None if the user gave a name. Requests contain the ARN if there is one; access to a stream
            of another account requires it.
    """

    name: str
    arn: str | None = None

    @classmethod
    def parse(cls, value: str | StreamId) -> StreamId:
        """Read a name or an ARN.

        Raises:
            ConfigError: If the value is neither a stream name (1 to 128 of ``a-zA-Z0-9_.-``) nor a Kinesis stream ARN.
        """
        if isinstance(value, StreamId):
            return value
        if isinstance(value, str):
            if _NAME.fullmatch(value):
                return cls(value)
            match = _ARN.fullmatch(value)
            if match:
                return cls(match["name"], value)
        raise ConfigError(
            "stream", value, "a stream name (1 to 128 of a-z A-Z 0-9 _ . -) or a Kinesis stream ARN"
        )

    @classmethod
    def of_table_stream(cls, arn: str) -> StreamId | None:
        """Return the stream of a DynamoDB table by its ARN; None if the text is not the ARN of a table's stream."""
        match = _TABLE_STREAM_ARN.fullmatch(arn)
        return None if match is None else cls(match["name"], arn)

    @property
    def is_of_table(self) -> bool:
        """Whether this is the stream of a DynamoDB table."""
        return self.arn is not None and _TABLE_STREAM_ARN.fullmatch(self.arn) is not None

    def _part(self, name: str) -> str | None:
        match = (_ARN.fullmatch(self.arn) or _TABLE_STREAM_ARN.fullmatch(self.arn)) if self.arn else None
        return match[name] if match else None

    @property
    def request(self) -> dict[str, str]:
        """Request parameter that names the stream: ``StreamARN`` or ``StreamName``."""
        return {"StreamARN": self.arn} if self.arn else {"StreamName": self.name}

    @property
    def region(self) -> str | None:
        """Region of the ARN; None without an ARN."""
        return self._part("region")

    @property
    def account_id(self) -> str | None:
        """Account of the ARN; None without an ARN."""
        return self._part("account")

    def __str__(self) -> str:
        return self.arn or self.name
