"""Syntax trees of modules, which several tests of the whole package read."""

from __future__ import annotations

import ast
import functools


@functools.cache
def parse(source: str) -> ast.Module:
    """Return the tree of a module; it is shared and must not be changed."""
    return ast.parse(source)
