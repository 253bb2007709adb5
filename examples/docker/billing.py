"""The handler of the containers: `kinesis-sdk run billing:handle --stream orders --app billing`.

Without containers, against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:4
    cd examples/docker && kinesis-sdk run billing:handle --stream orders --app billing --processes 2

On AWS, set AWS_DEFAULT_REGION instead.
"""

from __future__ import annotations

import json
import logging

from kinesis_sdk import RecordBatch

LOGGER = logging.getLogger(__name__)


def handle(batch: RecordBatch) -> None:
    """Add up the orders of a batch."""
    total = sum(json.loads(record.data)["total"] for record in batch.records)
    LOGGER.info("%d orders of %s, in total %d", len(batch.records), batch.shard_id, total)
