"""The dashboard, the alert rules and KEDA's example name metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kinesis_sdk.admin.exporter import CATALOGUE as FLEET
from kinesis_sdk.admin.exporter import FleetMetrics
from kinesis_sdk.admin.exporter_http import ExporterPages
from kinesis_sdk.cli.main import cli
from kinesis_sdk.common.metrics import Kind, snake_case
from kinesis_sdk.metrics import CATALOGUE as SDK
from kinesis_sdk.metrics.conventions import prometheus_name, prometheus_sample
from tests.cli.commands import parse as parse_command
from tests.cli.tui.views import make_view

FOLDER = Path(__file__).parent.parent / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
KEDA = yaml.safe_load((FOLDER / "keda.yml").read_text(encoding="utf-8"))

_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_FUNCTIONS = {
    "absent", "and", "by", "count", "deriv", "increase", "label_values", "max", "min", "or", "rate", "sum", "topk",
    "on", "unless", "vector", "without",
}  # fmt: skip


def labels_by_metric() -> dict[str, frozenset[str]]:
    known = {metric.sample: frozenset(metric.labels) for metric in FLEET}
    for metric in SDK:
        labels = {snake_case(name) for name in (*metric.dimensions, *metric.optional)}
        if metric.operation:
            labels.add("operation")
        if metric.kind is Kind.OUTCOME:
            labels.add("outcome")
        names = {prometheus_sample(metric, "kinesis")}
        if metric.kind is Kind.TIMING:
            names |= {f"{prometheus_name(metric, 'kinesis')}_{part}" for part in ("bucket", "sum", "count")}
            labels.add("le")
        for name in names:
            known[name] = known.get(name, frozenset()) | labels
    return known


KNOWN = labels_by_metric()


def parse(expression: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels that an expression names."""
    labels = set()
    for inside in re.findall(r"\{([^}]*)\}", expression):
        labels |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
    for inside in re.findall(r"\b(?:by|without|on)\s*\(([^)]*)\)", expression):
        labels |= set(_WORD.findall(inside))
    bare = re.sub(
        r"\{[^}]*\}|\[[^]]*\]|\boffset \d+[smhd]\b|\b(?:by|without|on)\s*\([^)]*\)|\"[^\"]*\"",
        " ",
        expression,
    )
    return {word for word in _WORD.findall(bare) if word not in _FUNCTIONS}, labels


def check(expression: str, *, shown: str = "") -> list[str]:
    """Return what an expression, or a text with its labels, names that does not exist."""
    metrics, labels = parse(expression)
    wrong = [f"{name} in {expression}" for name in metrics if name not in KNOWN]
    exported = frozenset[str]().union(*(KNOWN.get(name, frozenset()) for name in metrics))
    wrong += [f"label {label} in {expression}" for label in labels if label not in exported]
    # What a legend or an annotation shows must survive the aggregation.
    by = re.findall(r"\b(?:sum|min|max|count)\s+by\s*\(([^)]*)\)", expression)
    left = {word for inside in by for word in _WORD.findall(inside)} if by else exported
    named = re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)", shown)
    wrong += [
        f"{label} in {shown}" for label in named if label not in {*left, "value", "with", "if", "else", "end"}
    ]
    # And what it asks for must exist.
    for query, label in re.findall(r'printf "([^"]*)".*?label "(\w+)"', shown):
        wrong += check(query.replace("%s", "x"))
        wrong += [f"{label} in {query}" for name in parse(query)[0] if label not in KNOWN.get(name, ())]
    return wrong


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


@pytest.mark.parametrize(
    ("title", "target"), list(targets()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_panel_names_what_exists(title: str, target: dict[str, Any]) -> None:
    assert check(target["expr"], shown=target["legendFormat"]) == []


def test_the_variables_name_what_exists() -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    query = variables["application"]["definition"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
    assert label in KNOWN[metric]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used == set(variables)


def test_the_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells


RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_what_exists(rule: dict[str, Any]) -> None:
    assert check(rule["expr"], shown=" ".join(rule["annotations"].values())) == []
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "remedy", "runbook_url"}
    page, _, section = rule["annotations"]["runbook_url"].partition("#")
    text = (FOLDER.parent / page).read_text(encoding="utf-8")
    sections = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    assert not section or section in sections


def test_the_alerts_have_names_of_their_own_and_are_documented() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    alerts, metrics = (
        (FOLDER.parent / "docs" / page).read_text(encoding="utf-8")
        for page in ("monitoring.md", "metrics.md")
    )
    for name in names:
        assert f"- `{name}`: " in alerts
    for metric in FLEET:
        assert f"`{metric.sample}`" in metrics


def test_remedies_name_commands_that_exist() -> None:
    texts = [rule["annotations"]["remedy"].partition("kinesis-sdk ")[2] for rule in RULES]
    commands = [re.sub(r"\{\{.*?\}\}", "x", text).split() for text in texts if text]
    assert len(commands) > 5
    for words in commands:
        parse_command(cli, words, quoted=False)


def test_the_example_for_keda_asks_for_a_number_that_exists() -> None:
    (trigger,) = KEDA["spec"]["triggers"]
    assert KEDA["apiVersion"] == "keda.sh/v1alpha1"
    assert KEDA["kind"] == "ScaledObject"
    assert trigger["type"] == "metrics-api"
    assert trigger["metadata"].keys() == {"url", "valueLocation", "targetValue", "activationTargetValue"}
    metrics = FleetMetrics(["billing"])
    metrics.update(make_view())
    path = re.fullmatch(r"http://[\w-]+:9464(/.*)", trigger["metadata"]["url"]).group(1)  # type: ignore[union-attr]
    status, _, body = ExporterPages(metrics).page(path)
    assert status == 200
    assert isinstance(json.loads(body)[trigger["metadata"]["valueLocation"]], float)


INHIBIT = yaml.safe_load(
    (FOLDER.parent / "examples" / "monitoring" / "alertmanager.yaml").read_text(encoding="utf-8")
)


def test_what_only_follows_from_an_alert_is_not_sent_beside_it() -> None:
    names = {rule["alert"] for rule in RULES}
    left_out: dict[str, set[str]] = {}
    for rule in INHIBIT["inhibit_rules"]:
        assert rule["equal"] == ["application"]
        ((source,), (targets,)) = rule["source_matchers"], rule["target_matchers"]
        source = source.removeprefix("alertname=").strip('"')
        matched = {
            name for name in names if re.fullmatch(targets.removeprefix("alertname=~").strip('"'), name)
        }
        assert source in names
        assert len(matched) == targets.count("|") + 1, "each part of the pattern is an alert"
        assert source not in matched, "an alert would hide itself"
        left_out[source] = matched
    # The alerts of a dead application: the rules or Alertmanager leave all but one out.
    of_a_dead_one = {
        rule["alert"]
        for rule in RULES
        if "unless on (application) kinesis_fleet_abandoned == 1" in rule["expr"]
    }
    assert of_a_dead_one == {"KinesisShardsWithoutOwner", "KinesisShardNotRead", "KinesisSilentWorkers"}
    assert {"KinesisLagHigh", "KinesisLagGrows", "KinesisProblems"} <= left_out["KinesisApplicationAbandoned"]
