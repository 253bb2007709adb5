"""Optional libraries of the codecs, and the extras that install them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kinesis_sdk.common.extras import install_hint


def import_library(module: str, extra: str, purpose: str) -> Any:
    """Import an optional library for a purpose; raise an ImportError that names the extra if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(install_hint(purpose, module.partition(".")[0], extra)) from error
