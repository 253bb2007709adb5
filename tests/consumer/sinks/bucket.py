"""A bucket of S3 in memory."""

from __future__ import annotations

import hashlib
import io

from botocore.exceptions import ClientError


class Bucket:
    """A boto3 S3 client with the calls and the conditions that the store uses."""

    def __init__(self):
        self.objects = {}
        self.calls = []
        self.before = lambda operation, key: None
        self.after = lambda operation, key: None

    def _call(self, operation, key, work):
        self.before(operation, key)
        self.calls.append(operation)
        result = work()
        self.after(operation, key)
        return result

    def get_object(self, *, Bucket, Key):  # noqa: N803 - boto3's names
        def work():
            content = self.objects.get(Key)
            if content is None:
                raise error("GetObject", "NoSuchKey", 404)
            return {"Body": io.BytesIO(content), "ETag": etag(content)}

        return self._call("GetObject", Key, work)

    def put_object(self, *, Bucket, Key, Body, IfMatch=None, IfNoneMatch=None):  # noqa: N803
        def work():
            found = self.objects.get(Key)
            if IfNoneMatch == "*" and found is not None:
                raise error("PutObject", "PreconditionFailed", 412)
            if IfMatch is not None and found is None:
                raise error("PutObject", "NoSuchKey", 404)
            if IfMatch is not None and etag(found) != IfMatch:
                raise error("PutObject", "PreconditionFailed", 412)
            self.objects[Key] = Body
            return {"ETag": etag(Body)}

        return self._call("PutObject", Key, work)

    def copy_object(self, *, Bucket, Key, CopySource):  # noqa: N803
        def work():
            if CopySource["Key"] not in self.objects:
                raise error("CopyObject", "NoSuchKey", 404)
            self.objects[Key] = self.objects[CopySource["Key"]]
            return {}

        return self._call("CopyObject", Key, work)

    def delete_object(self, *, Bucket, Key):  # noqa: N803
        return self._call("DeleteObject", Key, lambda: self.objects.pop(Key, None) or {})

    def list_objects_v2(self, *, Bucket, Prefix, ContinuationToken=""):  # noqa: N803
        def work():
            found = sorted(key for key in self.objects if key.startswith(Prefix) and key > ContinuationToken)
            page = {"Contents": [{"Key": key} for key in found[:2]]}
            if len(found) > 2:
                page.update(IsTruncated=True, NextContinuationToken=found[1])
            return page

        return self._call("ListObjectsV2", Prefix, work)


def etag(content):
    return hashlib.md5(content).hexdigest()


def error(operation, code, status):
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, operation)
