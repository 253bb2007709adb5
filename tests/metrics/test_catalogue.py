"""One definition of every metric: its names elsewhere, its documentation, and no second list anywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import kinesis_sdk
from kinesis_sdk.common import catalogue
from kinesis_sdk.common.catalogue import CATALOGUE, CONSUMER_METRICS, PRODUCER_METRICS
from kinesis_sdk.common.metrics import DIMENSIONS, Kind, Metric, Scope, stream_dimensions
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.metrics.conventions import base_unit, opentelemetry_name, prometheus_name, prometheus_sample
from kinesis_sdk.metrics.reference import main, updated

PACKAGE = Path(kinesis_sdk.__file__).parent
DOCUMENT = PACKAGE.parent / "docs" / "metrics.md"


def test_every_constant_is_in_the_catalogue_once() -> None:
    defined = [value for value in vars(catalogue).values() if isinstance(value, Metric)]
    assert len(defined) == len(CATALOGUE) == len(set(CATALOGUE))
    assert set(defined) == set(CATALOGUE)
    assert (*PRODUCER_METRICS, *CONSUMER_METRICS) == CATALOGUE


@pytest.mark.parametrize(
    "name", [lambda m: m.name, lambda m: prometheus_sample(m, "k"), lambda m: opentelemetry_name(m, "k")]
)
def test_names_are_unique_everywhere(name: object) -> None:
    assert callable(name)
    names = [name(metric) for metric in CATALOGUE]
    assert len(names) == len(set(names))


def test_definitions_are_sound() -> None:
    for metric in CATALOGUE:
        assert metric.unit in {"Count", "Bytes", "Milliseconds"}, metric
        assert {*metric.dimensions, *metric.optional} <= set(DIMENSIONS), metric
        assert bool(metric.operation) == (metric in CONSUMER_METRICS), metric
        assert (metric.kind is Kind.TIMING) <= (metric.unit == "Milliseconds"), metric
        assert (metric.kind is Kind.OUTCOME) <= (metric.unit == "Count"), metric
        assert re.fullmatch(r"[^|\n]+\.", metric.description), f"{metric}: one sentence, in a table"
        suffix = base_unit(metric.unit)[1]
        assert re.fullmatch(r"k_[a-z_]+", prometheus_name(metric, "k")), metric
        assert prometheus_name(metric, "k").endswith(suffix), metric
        assert not metric.snake_name.startswith("millis"), f"{metric}: the name would say another unit"


@pytest.mark.parametrize(
    ("metric", "prometheus", "opentelemetry"),
    [
        (catalogue.USER_RECORDS_PUT, "kinesis_user_records_put_total", "kinesis.user_records_put"),
        (
            catalogue.USER_RECORDS_DATA_PUT,
            "kinesis_user_records_data_put_bytes_total",
            "kinesis.user_records_data_put",
        ),
        (catalogue.MILLIS_BEHIND_LATEST, "kinesis_behind_latest_seconds", "kinesis.behind_latest"),
        (
            catalogue.PROCESS_RECORDS_TIME,
            "kinesis_process_records_time_seconds",
            "kinesis.process_records_time",
        ),
        (catalogue.GET_RECORDS_SUCCESS, "kinesis_get_records_total", "kinesis.get_records"),
        (catalogue.CURRENT_LEASES, "kinesis_current_leases", "kinesis.current_leases"),
    ],
)
def test_names_elsewhere(metric: Metric, prometheus: str, opentelemetry: str) -> None:
    assert prometheus_sample(metric, "kinesis") == prometheus
    assert opentelemetry_name(metric, "kinesis") == opentelemetry


def test_the_document_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert updated(text) == text, "run `make docs`"
    for metric in CATALOGUE:
        assert f"| `{metric.name}` |" in text
    assert updated(text.replace(CATALOGUE[0].description, "")) == text


def test_the_document_is_updated_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    path = tmp_path / "metrics.md"
    path.write_text(text.replace("RecordsProcessed", "?"), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["reference", str(path)])
    main()
    assert path.read_text(encoding="utf-8") == text


def test_no_other_module_spells_the_name_of_a_metric() -> None:
    """A name in quotes is a second list, which nothing keeps equal to the first.

    `lambda_events/measured.py` may: it gets each metric from the public catalogue by its name, and a wrong one fails its tests.
    """
    names = {metric.name for metric in CATALOGUE}
    mentioned = re.compile("|".join(map(re.escape, names))).search
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in PACKAGE.rglob("*.py")
        if path.name not in ("catalogue.py", "measured.py")
        and {"testing", "fetch"}.isdisjoint(path.relative_to(PACKAGE).parts)
    }
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path, text in texts.items()
        if mentioned(text)  # to parse the others would take most of the time
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert found, "the names that are exceptions are found"
    # A field of GetRecords responses has this name too.
    assert [line for line in found if not line.endswith(": MillisBehindLatest")] == []


def test_a_stream_named_by_arn_brings_its_account_and_region() -> None:
    assert stream_dimensions(StreamId("orders")) == {"StreamName": "orders"}
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    assert stream_dimensions(StreamId.parse(arn)) == {
        "StreamName": "orders",
        "AccountId": "123456789012",
        "Region": "eu-west-1",
    }
    scope = Scope({**stream_dimensions(StreamId.parse(arn)), "ShardId": "s"})
    catalogue.USER_RECORDS_PUT.check(scope)
    with pytest.raises(ValueError, match="not AccountId, Region"):
        catalogue.USER_RECORDS_PUT.check(Scope({"AccountId": "123456789012", "Region": "eu-west-1"}))


def test_a_scope_does_not_change() -> None:
    dimensions = {"StreamName": "orders"}
    scope = Scope(dimensions)
    dimensions["StreamName"] = "other"
    assert dict(scope.dimensions) == {"StreamName": "orders"}
    assert repr(scope) == "Scope({'StreamName': 'orders'})"
    with pytest.raises(TypeError):
        scope.dimensions["StreamName"] = "other"  # type: ignore[index]
