"""Lambda functions behind a stream of Kinesis, a DynamoDB table or Firehose: aggregates are opened, and failures are reported per record.

    @kinesis_handler(report_batch_item_failures=True)
    def handler(record: UserRecord) -> None:
        store(json.loads(record.data))

Only the standard library is imported, and protobuf with the first aggregate. docs/lambda.md is the guide.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.lambda_events.discarded import discarded_event as discarded_event
    from kinesis_sdk.lambda_events.events import KinesisEvent as KinesisEvent
    from kinesis_sdk.lambda_events.firehose import FirehoseRecord as FirehoseRecord
    from kinesis_sdk.lambda_events.firehose import Transformed as Transformed
    from kinesis_sdk.lambda_events.firehose import firehose_transform as firehose_transform
    from kinesis_sdk.lambda_events.handler import kinesis_handler as kinesis_handler
    from kinesis_sdk.lambda_events.progress import Progress as Progress
    from kinesis_sdk.lambda_events.progress import RecentProgress as RecentProgress
    from kinesis_sdk.lambda_events.tables import ChangeEvent as ChangeEvent
    from kinesis_sdk.lambda_events.tables import change_handler as change_handler
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.lambda_events.handler": ("kinesis_handler",),
            "kinesis_sdk.lambda_events.events": ("KinesisEvent",),
            "kinesis_sdk.lambda_events.progress": ("Progress", "RecentProgress"),
            "kinesis_sdk.lambda_events.discarded": ("discarded_event",),
            "kinesis_sdk.lambda_events.tables": ("ChangeEvent", "change_handler"),
            "kinesis_sdk.lambda_events.firehose": ("firehose_transform", "FirehoseRecord", "Transformed"),
        },
    )
