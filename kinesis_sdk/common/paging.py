"""Bound for listings that are read page by page."""

from __future__ import annotations

from kinesis_sdk.common.errors import ProtocolError


class PageLimit:
    """Ends a listing whose service always returns one more page, because its caller would wait forever and use unbounded memory.

    Args:
        listing: The listing, for the error: the operation, with the table or the stream if that helps.
        most: Maximum number of pages.
    """

    __slots__ = ("_listing", "_most", "_seen")

    def __init__(self, listing: str, most: int = 1_000) -> None:
        self._listing = listing
        self._most = most
        self._seen: set[int] = set()  # hashes: a hostile service's tokens may be megabytes each

    def check(self, token: object) -> None:
        """Note the token of the next page, before it is read.

        Raises:
            ProtocolError: If the page was already read, or exceeds the maximum number of pages.
        """
        known = hash(repr(token))
        if known in self._seen:
            raise ProtocolError(f"{self._listing}: a page token was repeated")
        self._seen.add(known)
        if len(self._seen) >= self._most:
            raise ProtocolError(f"{self._listing}: no end after {self._most:,} pages")
