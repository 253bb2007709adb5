"""The two calls that carry records, made through a boto3 client without boto3's cost per record.

boto3 walks every record through its service model, both ways. For PutRecords and GetRecords that is most of the
time spent: of 29 ms for 100 records of 50 KB put, 21 go into building the body; of 116 ms for 10,000 small records
read, 8 would do. So here botocore handles the *envelope* of a call and never sees the records, but for a sample.
Everything else stays botocore's: endpoints, credentials and their refresh, signing, timeouts, retries, connections,
errors, and the hooks that users registered.

Nothing private of botocore is used, only its events. Ours are registered once per client, and idle for calls that
are not made here: a call of ours is known by the object that carries its records or its iterator.

| event | what happens there for a call of ours |
| --- | --- |
| ``before-parameter-build`` | put: after all other hooks, the records are set aside, a placeholder takes their place |
| | get: the call is marked |
| ``before-call`` | put: before all other hooks, the records are encoded into the body, which is signed later |
| | get: it is noted that this call's answer comes next |
| ``before-parse`` | get: after all other hooks, the answer's records are taken out, but for the first |

So hooks that come before a request is serialised see (and may change) the real records, later ones the complete
body. Only hooks on the parsed answer of GetRecords see less than usual: the first record of an answer with several.
One that changes that record, or can not live with it, is noticed, and gets them all from then on. One that would
change others only is not noticed.

Whatever does not work out ends in the plain boto3 call, with the same results: clients that are not botocore's own,
stubbed ones, hooks that got in the way. To have plain calls only, hand in a client wrapped in an object of your own.
"""

from __future__ import annotations

from kinesis_sdk.common.fast_get import GetRecordsPage, get_records
from kinesis_sdk.common.fast_put import PutEntry, put_records

__all__ = [
    "GetRecordsPage",
    "PutEntry",
    "get_records",
    "put_records",
]
