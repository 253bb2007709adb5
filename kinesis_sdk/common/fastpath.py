"""PutRecords and GetRecords through a boto3 client, without boto3's cost per record.

boto3 converts every record according to its service model, in both directions. This is most of the time of PutRecords
and GetRecords: of 29 ms to put 100 records of 50 KB, 21 ms are spent on building the body; reading 10,000 small records
takes 116 ms instead of 8 ms. Here, botocore handles the *envelope* of a call and sees no records except for a sample.
botocore still does everything else: endpoints, credentials and their refresh, signing, timeouts, retries, connections,
errors, and the hooks that users registered.

The SDK uses only public events of botocore. Its hooks are registered once per client and do nothing for calls of other
code: a call of the SDK is recognized by the object that holds its records or its iterator.

| event | action for a call of the SDK |
| --- | --- |
| ``before-parameter-build`` | put: after all other hooks, a placeholder replaces the records |
| | get: the call is marked |
| ``before-call`` | put: before all other hooks, the records are encoded into the body, which is signed later |
| | get: the next response is marked as that of this call |
| ``before-parse`` | get: after all other hooks, all records but the first are removed from the response |

Hooks that run before a request is serialized therefore see (and may change) the real records, and later hooks see the
complete body. Only hooks on the parsed response of GetRecords see less than usual: the first record of several. If such a
hook changes that record or raises an error, the fast path is switched off and the hook gets all records from then on. A
hook that would change only other records is not detected.

In all other cases, the plain boto3 call is made, with the same result: for clients that are not botocore's own, for
stubbed clients, and for incompatible hooks. To use only plain calls, pass a client that is wrapped in another object.

This saves the cost per record. `kinesis_sdk.common.lean_calls` also saves most of boto3's cost per call of the readers.
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
