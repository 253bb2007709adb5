"""Fields of structured logging: each log line of producer and consumer says which stream, shard and worker it is about.

The fields are attributes of the `logging.LogRecord`, as ``extra`` sets them, so a formatter can print them. A field that
does not apply, or is not known, is None.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

FIELDS = ("stream", "shard", "worker")
"""Names of the fields: stream (name or ARN), shard id, worker id."""


def log_fields(
    *, stream: object = None, shard: str | None = None, worker: str | None = None
) -> dict[str, str | None]:
    """Return the fields of one line, for ``extra``.

    Args:
        stream: Name or ARN of the stream.
        shard: Id of the shard.
        worker: Id of the worker in the lease table.
    """
    return {"stream": None if stream is None else str(stream), "shard": shard, "worker": worker}


if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class FieldLogger(_Adapter):
    """A logger whose lines carry the fields of one object, for example of a shard's reader.

    A call may give ``extra`` with further fields, which win.

    Args:
        logger: The logger of the module.
        stream: Name or ARN of the stream.
        shard: Id of the shard.
        worker: Id of the worker in the lease table.
    """

    def __init__(
        self,
        logger: logging.Logger,
        *,
        stream: object = None,
        shard: str | None = None,
        worker: str | None = None,
    ) -> None:
        super().__init__(logger, log_fields(stream=stream, shard=shard, worker=worker))

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields to a call."""
        given = kwargs.get("extra") or {}
        kwargs["extra"] = {
            **(self.extra or {}),
            **{name: value for name, value in given.items() if value is not None},
        }
        return msg, kwargs
