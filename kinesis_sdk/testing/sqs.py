"""A fake of SQS: queues whose messages are received, hidden, and deleted. No redrive, no delays, no long polls."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.errors import AwsError

_MAX_MESSAGE = 1_048_576
_MAX_HIDDEN = 43_200
_BATCH = 10


@dataclass
class _Message:
    identity: str
    body: str
    hidden_until: float = 0.0
    handle: str = ""
    receives: int = 0

    @property
    def digest(self) -> str:
        return hashlib.md5(self.body.encode(), usedforsecurity=False).hexdigest()


class FakeSqs:
    """SQS in memory. Thread-safe. A hidden message cannot be received until its visibility time has passed."""

    target_prefix = "AmazonSQS"

    def __init__(self, clock: Clock, *, region: str, account_id: str) -> None:
        self._clock = clock
        self._prefix = f"https://sqs.{region}.amazonaws.com/{account_id}/"
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._queues: dict[str, dict[str, _Message]] = {}
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "CreateQueue": self.create_queue,
            "GetQueueUrl": self.get_queue_url,
            "SendMessage": self.send_message,
            "ReceiveMessage": self.receive_message,
            "DeleteMessageBatch": self.delete_message_batch,
            "ChangeMessageVisibilityBatch": self.change_message_visibility_batch,
        }

    def reset(self) -> None:
        """Forget all queues."""
        with self._lock:
            self._queues = {}

    def create_queue(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateQueue: an existing queue is kept."""
        url = f"{self._prefix}{request['QueueName']}"
        with self._lock:
            self._queues.setdefault(url, {})
        return {"QueueUrl": url}

    def get_queue_url(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetQueueUrl."""
        url = f"{self._prefix}{request['QueueName']}"
        with self._lock:
            self._queue(url)
        return {"QueueUrl": url}

    def send_message(self, request: dict[str, Any]) -> dict[str, Any]:
        """SendMessage: up to 1 MiB; a FIFO queue accepts a message id only once."""
        url, body = request["QueueUrl"], request["MessageBody"]
        if len(body.encode()) > _MAX_MESSAGE:
            raise AwsError(
                "InvalidParameterValue",
                f"One or more parameters are invalid. Reason: Message must be shorter than {_MAX_MESSAGE} bytes.",
            )
        is_fifo = url.endswith(".fifo")
        if is_fifo and "MessageGroupId" not in request:
            raise AwsError("MissingParameter", "The request must contain the parameter MessageGroupId.")
        with self._lock:
            queue = self._queue(url)
            identity = request["MessageDeduplicationId"] if is_fifo else f"message-{next(self._numbers)}"
            message = queue.setdefault(identity, _Message(identity, body))
        return {"MessageId": identity, "MD5OfMessageBody": message.digest}

    def receive_message(self, request: dict[str, Any]) -> dict[str, Any]:
        """ReceiveMessage: up to ten messages that are not hidden; never waits."""
        most = request.get("MaxNumberOfMessages", 1)
        if not 1 <= most <= _BATCH:
            raise AwsError(
                "InvalidParameterValue", f"Value {most} for parameter MaxNumberOfMessages is invalid."
            )
        hidden = _checked_visibility(request.get("VisibilityTimeout", 30))
        now = self._clock.time()
        found = []
        with self._lock:
            for message in self._queue(request["QueueUrl"]).values():
                if message.hidden_until > now:
                    continue
                message.hidden_until = now + hidden
                message.receives += 1
                message.handle = f"{message.identity}#{message.receives}"
                found.append(
                    {
                        "MessageId": message.identity,
                        "ReceiptHandle": message.handle,
                        "Body": message.body,
                        "MD5OfBody": message.digest,
                    }
                )
                if len(found) == most:
                    break
        return {"Messages": found} if found else {}

    def delete_message_batch(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteMessageBatch: a message that was received again in the meantime is kept, because SQS may also keep it."""
        return self._each(request, lambda queue, message, _: queue.pop(message.identity))

    def change_message_visibility_batch(self, request: dict[str, Any]) -> dict[str, Any]:
        """ChangeMessageVisibilityBatch."""
        now = self._clock.time()

        def change(_queue: dict[str, _Message], message: _Message, entry: dict[str, Any]) -> None:
            message.hidden_until = now + _checked_visibility(entry["VisibilityTimeout"])

        return self._each(request, change)

    def _each(
        self,
        request: dict[str, Any],
        change: Callable[[dict[str, _Message], _Message, dict[str, Any]], object],
    ) -> dict[str, Any]:
        entries = request["Entries"]
        if not 1 <= len(entries) <= _BATCH:
            raise AwsError(
                "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
                f"1 to {_BATCH} entries, not {len(entries)}.",
            )
        done, failed = [], []
        with self._lock:
            queue = self._queue(request["QueueUrl"])
            for entry in entries:
                handle = entry["ReceiptHandle"]
                message = queue.get(handle.rpartition("#")[0])
                if message is None or message.handle != handle:
                    failed.append({"Id": entry["Id"], "Code": "ReceiptHandleIsInvalid", "SenderFault": True})
                    continue
                change(queue, message, entry)
                done.append({"Id": entry["Id"]})
        return {"Successful": done, "Failed": failed}

    def _queue(self, url: str) -> dict[str, _Message]:
        if url not in self._queues:
            raise AwsError("QueueDoesNotExist", "The specified queue does not exist.")
        return self._queues[url]


def _checked_visibility(seconds: float) -> float:
    if not 0 <= seconds <= _MAX_HIDDEN:
        raise AwsError(
            "InvalidParameterValue", f"Value {seconds} for parameter VisibilityTimeout is invalid."
        )
    return seconds
