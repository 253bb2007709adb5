"""Dead letters in an SQS queue: a message for each."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from kinesis_sdk.admin import Connection
from kinesis_sdk.common.aws import translate_errors
from kinesis_sdk.common.errors import DeadLetterError, KinesisSdkError
from kinesis_sdk.dead_letters.letter import DeadLetter, State

MAX_MESSAGE = 1_048_576
"""Maximum bytes of a message."""
MAX_RECEIVED = 10_000
"""Maximum messages of one pass. SQS allows 120,000 (FIFO: 20,000) messages in flight for all readers of a queue."""

_VISIBILITY = 600
"""Seconds for which a message is hidden from other readers: longer than a replay of the letters that are read with it."""
_WAIT = 2
"""Seconds for which SQS waits for messages. With a wait, SQS queries all its servers."""
_EMPTY = 2
"""Consecutive empty responses after which a pass ends."""
_BATCH = 10


class SqsDeadLetters:
    """Dead letters in an SQS queue.

    Reading a queue hides its messages from other readers for ten minutes, or until `close`. A queue stores no marks.
    So two simultaneous commands see different letters, and if a replay is killed, the next replay repeats the letters that were in
    progress. A replayed letter is deleted. Letters are lost when the queue's retention ends (at most 14 days), or when the queue's own
    redrive policy moves them.

    Args:
        url: URL of the queue, as GetQueueUrl returns it.
        connection: Region, profile and endpoint; None uses the usual AWS settings.

    Attributes:
        location: ``sqs:`` and the URL.
        unreadable: Messages of the last pass that are not dead letters; they stay in the queue.
    """

    def __init__(self, url: str, *, connection: Connection | None = None) -> None:
        self._url = url
        self._connection = connection or Connection()
        self._is_fifo = url.endswith(".fifo")
        self._lock = threading.Lock()
        # Receipt handles of the messages that this process hides, by letter; several, if a record was set aside repeatedly.
        self._handles: dict[str, list[str]] = {}
        self._others: list[str] = []
        self.location: str = f"sqs:{url}"
        self.unreadable: int = 0

    def keep(self, letter: DeadLetter) -> None:
        """See `DeadLetterStore.keep`. A payload above about 768 KiB cannot be stored, because a message has at most 1 MiB."""
        body = letter.to_line().decode("ascii").rstrip("\n")
        if len(body) > MAX_MESSAGE:
            raise DeadLetterError(
                f"{self.location}: a record of {letter.size:,} bytes does not fit into a message of {MAX_MESSAGE:,} bytes: keep dead "
                "letters in a stream or a database"
            )
        request: dict[str, Any] = {"QueueUrl": self._url, "MessageBody": body}
        if self._is_fifo:
            request["MessageGroupId"] = letter.history.origin.shard_id
            # The id includes the time. SQS silently drops a message whose id it got within the last five minutes, even if the
            # earlier message was replayed and deleted since.
            request["MessageDeduplicationId"] = f"{letter.id}-{letter.history.attempt}-{letter.set_aside}"
        self._call("SendMessage", **request)

    def letters(self, *, payload: bool = False) -> Iterator[DeadLetter]:
        """See `DeadLetterStore.letters`. At most 10,000 messages are received; a pass after `close` may see other letters."""
        self.close()  # the plan and its execution are two passes
        self.unreadable = 0
        received = empty = 0
        while empty < _EMPTY and received < MAX_RECEIVED:
            messages = self._call(
                "ReceiveMessage",
                QueueUrl=self._url,
                MaxNumberOfMessages=_BATCH,
                VisibilityTimeout=_VISIBILITY,
                WaitTimeSeconds=_WAIT,
            ).get("Messages", [])
            empty = 0 if messages else empty + 1
            received += len(messages)
            for message in messages:
                letter = _letter(message)
                if letter is None:
                    self.unreadable += 1
                    self._others.append(message["ReceiptHandle"])
                    continue
                known = letter.id in self._handles
                self._handles.setdefault(letter.id, []).append(message["ReceiptHandle"])
                if not known:
                    yield letter if payload else letter.without_payload()

    def mark(self, letters: Sequence[DeadLetter], state: State) -> None:
        """Delete the messages of replayed letters; a queue stores no other state."""
        if state is State.REPLAYED:
            self.drop(letters)

    def drop(self, letters: Sequence[DeadLetter]) -> None:
        """See `DeadLetterStore.drop`."""
        handles = [handle for one in letters for handle in self._handles.pop(one.id, [])]
        self._each("DeleteMessageBatch", handles, {})

    def close(self) -> None:
        """Make the messages that were read and not deleted visible to other readers again."""
        handles = [handle for several in self._handles.values() for handle in several] + self._others
        self._handles, self._others = {}, []
        self._each("ChangeMessageVisibilityBatch", handles, {"VisibilityTimeout": 0})

    def _each(self, operation: str, handles: Sequence[str], more: dict[str, Any]) -> None:
        for begin in range(0, len(handles), _BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle, **more}
                for number, handle in enumerate(handles[begin : begin + _BATCH])
            ]
            answer = self._call(operation, QueueUrl=self._url, Entries=entries)
            failed = answer.get("Failed", [])
            if failed and operation == "DeleteMessageBatch":
                raise DeadLetterError(
                    f"{self.location}: {len(failed)} letters could not be deleted ({failed[0].get('Code', 'no code')}); they will be received again"
                )

    def _call(self, operation: str, **request: Any) -> Any:
        client = self._connection.client("sqs")
        names = {
            "SendMessage": "send_message",
            "ReceiveMessage": "receive_message",
            "DeleteMessageBatch": "delete_message_batch",
            "ChangeMessageVisibilityBatch": "change_message_visibility_batch",
        }
        try:
            with translate_errors(operation, client):
                return getattr(client, names[operation])(**request)
        except KinesisSdkError as error:
            raise DeadLetterError(f"{self.location}: {error}") from error


def _letter(message: Any) -> DeadLetter | None:
    try:
        return DeadLetter.from_line(message["Body"])
    except (KeyError, ValueError):
        return None
