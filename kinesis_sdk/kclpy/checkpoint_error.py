"""The error of a checkpoint that was not stored."""

from __future__ import annotations

_RETRYABLE = frozenset({"ThrottlingException", "KinesisClientLibDependencyException"})


class CheckpointError(Exception):
    """A checkpoint was not stored.

    | value | meaning | retryable |
    | --- | --- | --- |
    | ``ThrottlingException`` | DynamoDB throttled the write | yes |
    | ``KinesisClientLibDependencyException`` | the write failed for another reason that may pass | yes |
    | ``ShutdownException`` | the lease is no longer held; another worker continues from the last checkpoint | no |
    | ``InvalidStateException`` | no checkpoint is possible in this callback, or the lease table is missing or not accessible | no |
    | ``IllegalArgumentException`` | the position is not between the last checkpoint and the last delivered record | no |

    A daemon may send other names, which are names of Java exceptions.

    Args:
        value: Name of the exception.

    Attributes:
        value: Name of the exception.
    """

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value

    @property
    def retryable(self) -> bool:
        """Whether the same checkpoint may succeed later."""
        return self.value in _RETRYABLE

    def __str__(self) -> str:
        return repr(self.value)
