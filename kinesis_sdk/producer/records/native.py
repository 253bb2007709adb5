"""Decorators for the compiler of `make wheel-compiled`, which need not be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414
else:

    def mypyc_attr(**_):  # noqa: ANN003, ANN201
        """Return a decorator that changes nothing."""
        return lambda kind: kind
