"""Children that fail: their shard starts again only after their end."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from kinesis_sdk.common.errors import RestartShardError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.multilang.children import Children
from kinesis_sdk.multilang.session import CallFailedError, ChildSession


class Undying:
    """A child in a system call that SIGKILL does not interrupt; it is gone after some waits."""

    pid = 7
    shard_id = "shardId-000000000000"
    logger = FieldLogger(logging.getLogger(__name__))

    def __init__(self, waits: int) -> None:
        self.process = self
        self.waits = waits
        self.children: Children | None = None

    def finish(self, grace: float) -> None:
        """SIGKILL will not help."""

    def wait_gone(self, timeout: float) -> bool:
        assert timeout >= 5, "SIGKILL takes a while, however short the grace is"
        self.waits -= 1
        if self.waits < -5 and self.children is not None:
            self.children.begin_stop()
        return self.waits == 0


def test_a_shard_does_not_start_again_beside_a_child_that_has_not_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = Undying(waits=3)
    error = Children(["app"]).end_failed(cast(ChildSession, child), CallFailedError("it hangs", hung=True))
    assert isinstance(error, RestartShardError)
    assert child.waits == 0
    assert len([line for line in caplog.messages if "child 7 has not ended after SIGKILL" in line]) == 2


def test_a_short_grace_leaves_the_system_time_to_end_a_child(caplog: pytest.LogCaptureFixture) -> None:
    """With 1 ms, the log had a line every 4 ms about a child that "has not ended after SIGKILL", before SIGKILL was sent."""
    child = Undying(waits=1)
    children = Children(["app"], exit_grace=0.001)
    children.end_failed(cast(ChildSession, child), CallFailedError("it hangs", hung=True))
    assert not [line for line in caplog.messages if "has not ended" in line]
    late = Undying(waits=1)
    children._running.add(cast(Any, late))
    assert children.close(soon=True), "a clean end"


def test_a_daemon_that_stops_does_not_wait_for_a_child_that_never_ends() -> None:
    child = Undying(waits=-1)
    child.children = Children(["app"])
    error = child.children.end_failed(cast(ChildSession, child), CallFailedError("it hangs", hung=True))
    assert isinstance(error, RestartShardError)
