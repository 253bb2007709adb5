"""The most frequent calls at a fraction of boto3's CPU time: PutRecords, GetRecords, GetShardIterator, and UpdateItem of lease tables.

boto3 spends 0.5 ms of CPU on any call, and converts every record according to its service model: putting 100 records of
50 KB takes 29 ms, of which 21 ms go into the body. Nearly all of this work is the same for each call.

`Transport` wraps a boto3 client. boto3 makes the first call of each kind, and its request becomes a form
(`kinesis_sdk.common.transport.form`). Further calls reuse the URL, the headers and the way to sign. boto3 resolves the
endpoint, region, credentials, proxies, certificates and timeouts, opens the connections, and decides about retries.

| step | who does it |
| --- | --- |
| resolve the configuration; open connections | boto3 |
| credentials and their refresh | the signer of the client |
| body of PutRecords and GetRecords | `kinesis_sdk.common.transport.put`, `kinesis_sdk.common.transport.get` |
| body of an UpdateItem request with text and numbers only | `json.dumps` |
| signature | a form, which must first reproduce a signature of boto3 |
| send on an open connection of boto3's pool | `kinesis_sdk.common.transport.connection` |
| send without an open connection, or through a proxy | the HTTP session of the client |
| records of a response | `kinesis_sdk.common.transport.get` |
| everything else in a response | botocore's parser |

boto3 itself makes all other calls, with the same result:

| case | what happens |
| --- | --- |
| the client is modified (see `kinesis_sdk.common.transport.hooks`), or not boto3's | boto3 makes the call |
| the form of the request is not known, or its parameters are unusual | boto3 makes the call |
| an error response, a transport error, or a response that is truncated or lacks its member | see below |

In the last case boto3 also makes the call, but takes the existing response (or exception) as the result of its own first
attempt, by botocore's public event ``before-send``. boto3 raises its usual exceptions and retries according to its retry
mode. No request is sent twice: a throttled call counts once at Kinesis.

boto3 makes all SubscribeToShard calls: there is one in five minutes for each shard, and its response is a stream. `sending` can redirect
their requests.
"""

from __future__ import annotations

from kinesis_sdk.common.transport.calls import Transport, sending
from kinesis_sdk.common.transport.get import GetRecordsPage, get_records
from kinesis_sdk.common.transport.put import PutEntry, put_records

__all__ = [
    "GetRecordsPage",
    "PutEntry",
    "Transport",
    "get_records",
    "put_records",
    "sending",
]
