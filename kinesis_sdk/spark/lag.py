"""Whether a query keeps up with its streams."""

from __future__ import annotations

import logging
from collections import deque

from kinesis_sdk.spark.unread import Cut

_LOGGER = logging.getLogger(__name__)

_FALLING_BEHIND = 8
"""Number of limited batches over which the lag is compared; the first comparison needs half of them."""


class Lag:
    """Distance from the last cut of a query to the tip, and whether it grows.

    Attributes:
        limited_by: Limit that ended the last batch before the tip; None if no limit did.
        behind: Milliseconds from the last cut to the tip; 0 if no limit ended the batch.
        falling: Whether ``behind`` has grown over the last limited batches.
    """

    def __init__(self) -> None:
        self.limited_by: str | None = None
        self.behind: int = 0
        self.falling: bool = False
        self._last: deque[tuple[Cut, int]] = deque(maxlen=_FALLING_BEHIND)
        self._warned = False

    def note(self, cut: Cut, limited_by: str | None) -> None:
        """Note the cut of a batch. Warns once when the query falls behind, and again only after it has reached the tip."""
        self.limited_by = limited_by
        self.behind = max(0, cut.now - cut.millis) if limited_by else 0
        if not limited_by:
            if self._warned:
                _LOGGER.info("the query has reached the tip")
            self._last.clear()
            self.falling = self._warned = False
            return
        self._last.append((cut, self.behind))
        first, behind = self._last[0]
        self.falling = len(self._last) >= _FALLING_BEHIND // 2 and self.behind > behind
        if self.falling and not self._warned:
            self._warned = True
            _LOGGER.warning(
                "the query falls behind: the last %d batches held %.0f s of stream time, limited by %s, while %.0f s passed; it is "
                "%.0f s behind the tip",
                len(self._last) - 1,
                (cut.millis - first.millis) / 1000,
                limited_by if limited_by != "span" else "the time that batches take",
                (cut.now - first.now) / 1000,
                self.behind / 1000,
            )
