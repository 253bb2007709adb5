"""Listings whose service always has one more page."""

from __future__ import annotations

import tracemalloc

import pytest

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.paging import PageLimit


def test_so_many_pages_and_no_more() -> None:
    limit = PageLimit("ListThings of x", most=3)
    limit.check("1")
    limit.check({"id": {"S": "2"}})
    with pytest.raises(ProtocolError, match=r"ListThings of x: .* 3 pages"):
        limit.check("3")


def test_no_token_is_kept() -> None:
    """A thousand tokens of a megabyte each would be a gigabyte."""
    limit = PageLimit("ListThings")
    tracemalloc.start()
    try:
        for number in range(50):
            limit.check(f"{number}" + "x" * 1_000_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


def test_a_page_that_comes_again_is_the_last() -> None:
    limit = PageLimit("ListThings")
    limit.check({"id": 1})
    with pytest.raises(ProtocolError, match=r"^ListThings: "):
        limit.check({"id": 1})
