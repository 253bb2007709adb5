"""Fields of structured logging: the stream, shard and worker that a log line of producer or consumer concerns.

The fields are attributes of the `logging.LogRecord`, as ``extra`` sets them, so a formatter can print them. A field that does not apply,
or is unknown, is None.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import DeserializationError, SerializationError

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


def loggable(error: BaseException) -> BaseException:
    """Return an error whose traceback can be logged: without the causes of serialization errors.

    A handler reads ``record.value``, and the library rejects the payload with a message that quotes it. `DeserializationError` has
    this error as its cause, for the application; a log line with the traceback would print the payload at each attempt. The error
    may also be inside an exception group, for example of a handler's `asyncio.TaskGroup`.

    Returns:
        The error itself, or a copy for the log if a part has to be left out.
    """
    if isinstance(error, (SerializationError, DeserializationError)):
        return _copy(error, None) if error.__cause__ or error.__context__ else error
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    rest = None if cause is None else loggable(cause)
    members = _members(error)
    shown = [loggable(member) for member in members]
    if all(copy is member for copy, member in zip(shown, members, strict=True)):
        return error if rest is cause else _copy(error, rest)
    return _copy_group(error, shown, rest)


def _members(error: BaseException) -> Sequence[BaseException]:
    """Return the errors of an exception group of Python 3.11, or of its backport; an empty result for any other error."""
    members = getattr(error, "exceptions", ()) if callable(getattr(error, "derive", None)) else ()
    if isinstance(members, (tuple, list)) and all(isinstance(member, BaseException) for member in members):
        return members
    return ()


_GROUPS = frozenset({"ExceptionGroup", "BaseExceptionGroup"})
"""Names of the classes of Python 3.11 and of its backport."""


def _copy_group(
    error: BaseException, members: Sequence[BaseException], cause: BaseException | None
) -> BaseException:
    """Return a copy of an exception group with other members and another cause, for formatting only."""
    copy: BaseException
    try:
        # A user's class may have its own constructor, so the copy has Python's class.
        kind = next(kind for kind in type(error).__mro__ if kind.__name__ in _GROUPS)
        text = str(getattr(error, "message", ""))
        copy = kind(text if kind is type(error) else f"{type(error).__name__}: {text}", members)
    except Exception:  # noqa: BLE001 - a group that cannot be copied is named, without its members
        copy = RuntimeError(f"{type(error).__name__} of {len(members)} errors")
    copy.__cause__ = cause
    if hasattr(error, "__notes__"):
        copy.__notes__ = error.__notes__  # type: ignore[attr-defined]
    return copy.with_traceback(error.__traceback__)


def _copy(error: BaseException, cause: BaseException | None) -> BaseException:
    """Return a copy with another cause, for formatting only. `__init__` is not called: it may need more arguments."""
    kind = type(error)
    try:
        copy = kind.__new__(kind, *error.args)
        copy.__dict__.update(error.__dict__)
        copy.args = error.args
        copy.__cause__ = cause
    except Exception:  # noqa: BLE001 - a class that cannot be copied is named
        copy = RuntimeError(f"{kind.__name__}: {error}")
        copy.__cause__ = cause
    return copy.with_traceback(error.__traceback__)


if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
    AnyLogger = logging.Logger | _Adapter
else:
    _Adapter = logging.LoggerAdapter


class FieldLogger(_Adapter):
    """A logger whose lines carry the fields of one object, for example of a shard's reader.

    Each module of producer and consumer has a logger without fields of its own, ``_LOGGER = FieldLogger(logging.getLogger(__name__))``, so
    every line has all field names. Values of a call's ``extra=log_fields(...)`` take precedence.

    Args:
        logger: The logger of the module, or a logger with fewer fields.
        stream: Name or ARN of the stream.
        shard: Id of the shard.
        worker: Id of the worker in the lease table.

    Attributes:
        fields: The fields.
    """

    def __init__(
        self,
        logger: logging.Logger | FieldLogger,
        *,
        stream: object = None,
        shard: str | None = None,
        worker: str | None = None,
    ) -> None:
        own = log_fields(stream=stream, shard=shard, worker=worker)
        if isinstance(logger, FieldLogger):
            own = {
                name: inherited if own[name] is None else own[name]
                for name, inherited in logger.fields.items()
            }
            logger = logger.logger
        self.fields: dict[str, str | None] = own
        super().__init__(logger, own)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields to a call, and remove causes that may quote a payload from its traceback."""
        error = kwargs.get("exc_info")
        if error is True:
            error = sys.exc_info()[1]
        if isinstance(error, BaseException):
            kwargs["exc_info"] = loggable(error)
        given = kwargs.get("extra") or {}
        kwargs["extra"] = {
            **self.fields,
            **{name: value for name, value in given.items() if value is not None},
        }
        return msg, kwargs
