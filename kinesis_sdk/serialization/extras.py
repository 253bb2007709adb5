"""Optional libraries of the codecs, and the extras that install them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kinesis_sdk.common.extras import install_hint


def import_library(module: str, extra: str, purpose: str) -> Any:
    """Import an optional library.

    Args:
        module: Module to import.
        extra: Extra of this package that installs it.
        purpose: What needs it, for the message.

    Raises:
        ImportError: If it is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(install_hint(purpose, module.partition(".")[0], extra)) from error
