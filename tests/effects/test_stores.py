"""How the counters of DynamoDB are read."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from integration.effects.stores import OTHERS, read_counters
from kinesis_sdk.testing import FakeAws


class Answering:
    """A client that answers for one key of each request, and returns the others as unprocessed."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.describe_table = client.describe_table

    def batch_get_item(self, **request: Any) -> Any:
        ((table, wanted),) = request["RequestItems"].items()
        keys = wanted["Keys"]
        item = self._client.get_item(TableName=table, Key=keys[0]).get("Item")
        left = {table: {"Keys": keys[1:]}} if keys[1:] else {}
        return {"Responses": {table: [item] if item else []}, "UnprocessedKeys": left}


def test_counters_are_read_by_key_and_others_are_counted() -> None:
    client = FakeAws().client("dynamodb")
    client.create_table(
        TableName="counted-effects",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for number in range(250):
        item = {"id": {"S": str(number)}, "effects": {"N": "2" if number == 7 else "1"}}
        client.put_item(TableName="counted-effects", Item=item)
    every = {str(number) for number in range(250)}
    expected = {one: 2 if one == "7" else 1 for one in every}
    slow: Any = Answering(client)
    assert read_counters(slow, every) == expected
    assert read_counters(slow, every | {"missing"}) == expected
    del expected["3"]
    assert read_counters(slow, every - {"3"}) == {**expected, OTHERS: 1}
