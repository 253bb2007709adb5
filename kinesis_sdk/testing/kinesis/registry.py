"""Streams of the account, found by name or ARN, and counters of their records."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.errors import AwsError, constraint, invalid_argument
from kinesis_sdk.testing.faults import Faults
from kinesis_sdk.testing.kinesis.streams import Stream

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
_STREAM_ARN = re.compile(r"arn:aws[^:]*:kinesis:[^:]*:\d{12}:stream/([a-zA-Z0-9_.-]{1,128})", re.ASCII)


class StreamRegistry:
    """Streams by name, and the state that all Kinesis operations share.

    Attributes:
        faults: Set of faults that is checked for each record that is written.
        account_id: Twelve digits.
        throttle: Whether shards enforce their read and write limits.
        throttle_control_plane: Whether administrative calls are limited per account.
        random: Places records on AUTO streams.
        lock: Guards `streams`. Taken before a stream's lock, never after.
    """

    def __init__(
        self,
        clock: Clock,
        faults: Faults,
        *,
        region: str,
        account_id: str,
        seed: int,
        throttle: bool,
        throttle_control_plane: bool,
        stream_delay: float,
        reshard_delay: float,
        consumer_delay: float,
        shard_limit: int,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.region = region
        self.account_id = account_id
        self.throttle = throttle
        self.throttle_control_plane = throttle_control_plane
        self.random: random.Random = random.Random(seed)
        self.stream_delay = stream_delay
        self.reshard_delay = reshard_delay
        self.consumer_delay = consumer_delay
        self.shard_limit = shard_limit
        self.lock: threading.RLock = threading.RLock()
        self.streams: dict[str, Stream] = {}
        self._counts: Counter[str] = Counter()
        # A leaf lock. Order: `lock`, then a stream's lock, then this one.
        self._counts_lock = threading.Lock()

    def count(self, **amounts: int) -> None:
        """Add amounts to counters: ``records_stored``, ``bytes_stored``, ``records_read``, ``…_throttled``."""
        with self._counts_lock:
            self._counts.update(amounts)

    def counted(self, name: str) -> int:
        """Return the value of a counter."""
        with self._counts_lock:
            return self._counts[name]

    def reset(self) -> None:
        """Forget all streams and counters."""
        with self.lock:
            for stream in self.streams.values():
                stream.delete()
            self.streams = {}
        with self._counts_lock:
            self._counts.clear()

    def arn(self, name: str) -> str:
        """Return the ARN of a stream with this name."""
        return f"arn:aws:kinesis:{self.region}:{self.account_id}:stream/{name}"

    def require_name(self, name: Any) -> str:
        """Check a stream name."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise constraint("streamName", name, "satisfy regular expression pattern: [a-zA-Z0-9_.-]+")
        return name

    def name_in(self, request: dict[str, Any]) -> str | None:
        """Return the name in a request's ``StreamName`` or ``StreamARN``, unchecked; None if neither is set."""
        name = request.get("StreamName")
        if isinstance(name, str):
            return name
        arn = request.get("StreamARN") or request.get("ConsumerARN")
        return arn.split(":stream/")[-1].split("/")[0] if isinstance(arn, str) else None

    def find(self, request: dict[str, Any]) -> Stream:
        """Return the stream that a request names by ``StreamName``, ``StreamARN`` or both; they must agree."""
        name, arn = request.get("StreamName"), request.get("StreamARN")
        if name is None and arn is None:
            raise invalid_argument("Either StreamName or StreamARN should be provided in the request.")
        if arn is not None:
            match = _STREAM_ARN.fullmatch(arn) if isinstance(arn, str) else None
            if match is None:
                raise constraint(
                    "streamARN",
                    arn,
                    r"satisfy regular expression pattern: arn:aws.*:kinesis:.*:\d{12}:stream/\S+",
                )
            if name is not None and name != match.group(1):
                raise invalid_argument(f"StreamName {name} and StreamARN {arn} name different streams.")
            name = match.group(1)
        return self.by_name(self.require_name(name), arn)

    def by_name(self, name: str, arn: str | None = None) -> Stream:
        """Return the stream with this name, and this ARN if given, after making due changes."""
        stream = self.streams.get(name)
        if stream is None or (arn is not None and arn != stream.arn):
            raise self.not_found(arn or name)
        with stream.lock:
            stream.settle()
        return stream

    def not_found(self, name: str) -> AwsError:
        """Return the error for a stream that does not exist."""
        return AwsError(
            "ResourceNotFoundException", f"Stream {name} under account {self.account_id} not found."
        )

    def find_serving(self, request: dict[str, Any]) -> Stream:
        """Return the same as `find`, except that a stream that is CREATING counts as missing, as in Kinesis."""
        stream = self.find(request)
        if stream.status == "CREATING":
            raise self.not_found(stream.name)
        return stream
