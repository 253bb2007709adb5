"""Checkpoints that a child requests: the shard's checkpointer stores them, and errors have the names of Java classes."""

from __future__ import annotations

from kinesis_sdk.common.errors import (
    InvalidCheckpointError,
    LeaseLostError,
    LeaseStoreError,
    ResourceNotFoundError,
    ThrottledError,
    TransientLeaseStoreError,
)
from kinesis_sdk.multilang.protocol import (
    DEPENDENCY,
    ILLEGAL_ARGUMENT,
    INVALID_STATE,
    SHUTDOWN,
    THROTTLING,
)


def error_name(error: Exception) -> str:
    """Return the name that a child expects for an error of `Checkpointer.checkpoint`."""
    if isinstance(error, LeaseLostError):
        return SHUTDOWN
    if isinstance(error, InvalidCheckpointError):
        return ILLEGAL_ARGUMENT
    if isinstance(error, ThrottledError):
        return THROTTLING
    # The lease table is gone. Every other error of DynamoDB, even access denied, is a failed dependency.
    if isinstance(error, ResourceNotFoundError):
        return INVALID_STATE
    if isinstance(error, LeaseStoreError) and not isinstance(error, TransientLeaseStoreError):
        return INVALID_STATE
    return DEPENDENCY
