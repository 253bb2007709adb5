"""Dead letters: kept by a hook of a worker, and listed, shown, replayed and dropped by ``kinesis-sdk dlq``.

    Worker(..., config=ConsumerConfig(on_handler_error=BisectBatch(dead_letter=DeadLetters("sqlite:///letters.db"))))

See `docs/dead-letters.md`. Everything is loaded on first use.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.dead_letters.files import FileDeadLetters as FileDeadLetters
    from kinesis_sdk.dead_letters.hook import DeadLetters as DeadLetters
    from kinesis_sdk.dead_letters.letter import DeadLetter as DeadLetter
    from kinesis_sdk.dead_letters.letter import State as State
    from kinesis_sdk.dead_letters.location import open_dead_letters as open_dead_letters
    from kinesis_sdk.dead_letters.sql import SqlDeadLetters as SqlDeadLetters
    from kinesis_sdk.dead_letters.sqs import SqsDeadLetters as SqsDeadLetters
    from kinesis_sdk.dead_letters.store import DeadLetterStore as DeadLetterStore
    from kinesis_sdk.dead_letters.store import Selection as Selection
    from kinesis_sdk.dead_letters.stream import StreamDeadLetters as StreamDeadLetters
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.dead_letters.hook": ("DeadLetters",),
            "kinesis_sdk.dead_letters.letter": ("DeadLetter", "State"),
            "kinesis_sdk.dead_letters.store": ("DeadLetterStore", "Selection"),
            "kinesis_sdk.dead_letters.files": ("FileDeadLetters",),
            "kinesis_sdk.dead_letters.sql": ("SqlDeadLetters",),
            "kinesis_sdk.dead_letters.stream": ("StreamDeadLetters",),
            "kinesis_sdk.dead_letters.sqs": ("SqsDeadLetters",),
            "kinesis_sdk.dead_letters.location": ("open_dead_letters",),
        },
    )
