from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.stream import StreamId

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders.v2"


def test_a_name() -> None:
    stream = StreamId.parse("orders.v2-a_b")
    assert stream == StreamId("orders.v2-a_b")
    assert stream.request == {"StreamName": "orders.v2-a_b"}
    assert stream.region is None
    assert str(stream) == "orders.v2-a_b"


def test_an_arn() -> None:
    stream = StreamId.parse(ARN)
    assert stream == StreamId("orders.v2", ARN)
    assert stream.request == {"StreamARN": ARN}
    assert stream.region == "eu-central-1"
    assert str(stream) == ARN
    assert StreamId.parse(stream) is stream


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov", "aws-iso-b"])
def test_partitions(partition: str) -> None:
    assert StreamId.parse(f"arn:{partition}:kinesis:cn-north-1:123456789012:stream/s").region == "cn-north-1"


@pytest.mark.parametrize("name", ["a", "a" * 128, "0", "-", "a.b_c-D"])
def test_borders_of_names(name: str) -> None:
    assert StreamId.parse(name).name == name


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a" * 129,
        "with space",
        "new\nline",
        "name\n",
        "ünicode",
        "a/b",
        None,
        5,
        b"orders",
        "arn:aws:kinesis:eu-central-1:12345678901:stream/orders",
        "arn:aws:kinesis:eu-central-1:١٢٣٤٥٦٧٨٩٠١٢:stream/orders",
        "arn:aws:kinesis::123456789012:stream/orders",
        "arn:aws:kinesis:eu central:123456789012:stream/orders",
        "arn:aws:sqs:eu-central-1:123456789012:stream/orders",
        "arn:aws:kinesis:eu-central-1:123456789012:stream/",
        "arn:aws:kinesis:eu-central-1:123456789012:stream/orders/consumer/c:1",
        ARN + "\n",
        "x" + ARN,
    ],
)
def test_neither(value: object) -> None:
    with pytest.raises(ConfigError, match=r"stream name .* or a Kinesis stream ARN") as caught:
        StreamId.parse(value)  # type: ignore[arg-type]
    assert caught.value.field == "stream"
    assert caught.value.value == value
