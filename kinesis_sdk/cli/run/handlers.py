"""Import of the user's handler, or of a factory of worker parts, with errors that show only the user's code."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from kinesis_sdk.consumer import ConsumerConfig, WorkerParts


class HandlerNotFoundError(Exception):
    """The handler cannot be imported. The message has the reason, with the traceback of the user's module if there is one."""


def split_name(name: str) -> tuple[str, str]:
    """Return the module and the attribute of ``module:attribute``.

    Raises:
        HandlerNotFoundError: If the name has another form.
    """
    module_name, _, path = name.partition(":")
    if (
        not module_name
        or not path
        or not all(part.isidentifier() for part in f"{module_name}.{path}".split("."))
    ):
        raise HandlerNotFoundError(
            f"{name!r} is not a handler: expected module:attribute, such as billing.consumer:handle"
        )
    return module_name, path


def load_handler(name: str) -> Any:
    """Import ``module:attribute``, also from the current directory.

    Raises:
        HandlerNotFoundError: If there is no such module or attribute, or if the module raises while it is imported.
    """
    module_name, path = split_name(name)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise HandlerNotFoundError(
                f"there is no module {error.name!r}, neither in {here} nor among the installed packages"
            ) from error
        raise HandlerNotFoundError(_describe(module_name, error)) from error
    except (Exception, SystemExit) as error:
        raise HandlerNotFoundError(_describe(module_name, error)) from error
    found: Any = module
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError as error:
            raise HandlerNotFoundError(f"module {module_name!r} has no attribute {path!r}") from error
    return found


def load_parts(name: str, config: ConsumerConfig, *, is_factory: bool) -> WorkerParts:
    """Return the parts of a worker. ``name`` is a handler, or with ``is_factory`` a function from settings to parts.

    Raises:
        HandlerNotFoundError: As for `load_handler`, or if the function raises an error or returns another type.
    """
    found = load_handler(name)
    if not is_factory:
        return WorkerParts(handler=found)
    if not callable(found):
        raise HandlerNotFoundError(f"{name!r} is not a function, which --factory expects")
    try:
        parts = found(config)
    except (Exception, SystemExit) as error:
        raise HandlerNotFoundError(f"the factory {name!r} failed:\n{_traceback(error)}") from error
    if not isinstance(parts, WorkerParts):
        raise HandlerNotFoundError(
            f"the factory {name!r} returned a {type(parts).__name__}, not a WorkerParts"
        )
    return parts


def _describe(module_name: str, error: BaseException) -> str:
    return f"module {module_name!r} cannot be imported:\n{_traceback(error)}"


def _traceback(error: BaseException) -> str:
    """Return an error with its traceback, starting at the first line of the user's code."""
    shown = traceback.TracebackException.from_exception(error)
    chain: list[traceback.TracebackException | None] = [shown]
    while chain:
        link = chain.pop()
        if link is None:
            continue
        link.stack = traceback.StackSummary.from_list([frame for frame in link.stack if _is_users(frame)])
        chain += [link.__cause__, link.__context__]
    return "".join(shown.format()).rstrip()


def _is_users(frame: traceback.FrameSummary) -> bool:
    return frame.filename not in (
        __file__,
        import_module.__code__.co_filename,
    ) and not frame.filename.startswith("<frozen importlib")
