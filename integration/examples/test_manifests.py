"""Docker, Kubernetes, Prometheus and Grafana: valid by their schemas, and their commands, ports and paths are those of the code."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import signal
import sqlite3
import sys
import urllib.error
import urllib.request
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from integration.examples.support import BIN, EXAMPLES, ROOT, TIMEOUT, Account
from integration.waiting import eventually
from kinesis_sdk import ProducerConfig
from kinesis_sdk.admin.exporter import FleetMetrics
from kinesis_sdk.admin.exporter_http import ExporterPages
from kinesis_sdk.cli.main import cli
from kinesis_sdk.cli.run.config_file import read_config
from tests.cli.tui.views import make_view
from tests.readme import DOCS, blocks

COMPOSE = yaml.safe_load((EXAMPLES / "docker" / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
MANIFESTS = {
    path.name: list(yaml.safe_load_all(path.read_text()))
    for path in sorted((EXAMPLES / "kubernetes").iterdir())
}
PROMETHEUS = yaml.safe_load((EXAMPLES / "monitoring" / "prometheus.yaml").read_text())
OBJECTS = [(name, found) for name, all_found in MANIFESTS.items() for found in all_found]


def only(name: str, kind: str) -> Any:
    (found,) = [found for found in MANIFESTS[name] if found["kind"] == kind]
    return found


def container(name: str) -> Any:
    (found,) = only(name, "Deployment")["spec"]["template"]["spec"]["containers"]
    return found


def parse(arguments: list[str]) -> dict[str, Any]:
    """Parse a command line of ``kinesis-sdk`` without running it; return its parameters."""
    context = click.Context(cli, info_name="kinesis-sdk")
    command: click.Command = cli
    rest = list(arguments)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = (
            click.Context(command, parent=context, info_name=name)
            if isinstance(command, click.Group)
            else command.make_context(name, rest, parent=context)
        )
    return context.params


def seconds(text: str) -> float:
    assert re.fullmatch(r"\d+s", text), text
    return float(text[:-1])


# Schemas


@pytest.mark.parametrize("path", ["examples/docker/compose.yaml", "docker-compose.yml"])
def test_compose_files_are_valid(path: str) -> None:
    """`compose.yaml`, by the schema of the Compose specification."""
    pytest.importorskip("check_jsonschema")
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
    jsonschema.validate(yaml.safe_load((ROOT / path).read_text()), schema)


def kubernetes_schema(kind: str) -> Any:
    schema = json.loads(Path(__file__).with_name("kubernetes.json").read_text())
    assert kind in schema["$defs"], f"add {kind} to kubernetes_schema.py"
    return {**schema, "$ref": f"#/$defs/{kind}"}


@pytest.mark.parametrize(
    ("name", "found"), OBJECTS, ids=[f"{name}-{found['kind']}" for name, found in OBJECTS]
)
def test_kubernetes_objects_are_valid(name: str, found: Any) -> None:
    """`worker.yaml` and `exporter.yaml`, by the strict schemas of Kubernetes: unknown fields are errors."""
    del name
    jsonschema.validate(found, kubernetes_schema(found["kind"]))


# Kubernetes


def test_the_deployment_of_a_zone_is_valid() -> None:
    """The node selector that docs/kubernetes.md shows, as a patch of the worker's Deployment."""
    (block,) = [block for block in blocks("yaml", DOCS / "kubernetes.md") if block.file is None]
    patch = yaml.safe_load(block.text)
    found = json.loads(json.dumps(only("worker.yaml", "Deployment")))
    assert list(patch) == ["spec"]
    assert list(patch["spec"]["template"]["spec"]) == ["nodeSelector"]
    found["spec"]["template"]["spec"] |= patch["spec"]["template"]["spec"]
    jsonschema.validate(found, kubernetes_schema("Deployment"))
    assert list(found["spec"]["template"]["spec"]["nodeSelector"]) == ["topology.kubernetes.io/zone"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_objects_of_a_manifest_belong_together(name: str) -> None:
    deployment = only(name, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    pod = deployment["spec"]["template"]["spec"]
    account = only(name, "ServiceAccount")
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    role = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
    assert re.fullmatch(r"arn:aws:iam::\d{12}:role/[\w-]+", role)
    for other in MANIFESTS[name]:
        if other["kind"] == "PodDisruptionBudget":
            assert other["spec"]["selector"]["matchLabels"] == labels
        if other["kind"] == "Service":
            assert other["spec"]["selector"] == labels
    ports = {port["name"]: port["containerPort"] for port in container(name)["ports"]}
    for probe in (value for key, value in container(name).items() if key.endswith("Probe")):
        assert probe["httpGet"]["port"] in ports
    assert container(name)["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]


def worker_arguments(folder: Path) -> list[str]:
    """Return the arguments of the worker, with the files of the ConfigMap in a folder."""
    told = container("worker.yaml")
    (mount,) = told["volumeMounts"]
    (volume,) = only("worker.yaml", "Deployment")["spec"]["template"]["spec"]["volumes"]
    found = only("worker.yaml", "ConfigMap")
    assert (mount["name"], volume["configMap"]["name"]) == (volume["name"], found["metadata"]["name"])
    for name, text in found["data"].items():
        (folder / name).write_text(text)
    return [argument.replace(mount["mountPath"], str(folder)) for argument in told["args"]]


def test_the_worker_has_time_to_stop(tmp_path: Path) -> None:
    options = parse(worker_arguments(tmp_path))
    assert read_config(str(tmp_path / "worker.toml")).leases.initial_rebalance_delay == 60
    pod = only("worker.yaml", "Deployment")["spec"]["template"]["spec"]
    assert options["stop_timeout"] < pod["terminationGracePeriodSeconds"]
    assert options["health_host"] == "0.0.0.0"
    ports = {port["name"]: port["containerPort"] for port in container("worker.yaml")["ports"]}
    assert ports == {"health": options["health_port"], "metrics": options["metrics_port"]}
    assert options["metrics_host"] == "0.0.0.0"
    annotations = only("worker.yaml", "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(options["metrics_port"])
    assert only("worker.yaml", "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_exporter_serves_what_is_asked_for() -> None:
    options = parse(container("exporter.yaml")["args"])
    assert options["host"] == "0.0.0.0"
    (port,) = container("exporter.yaml")["ports"]
    assert port["containerPort"] == options["port"]
    annotations = only("exporter.yaml", "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(options["port"])
    metrics = FleetMetrics(list(options["applications"]))
    metrics.update(make_view())
    pages, told = ExporterPages(metrics), container("exporter.yaml")
    status, *_ = pages.page(told["readinessProbe"]["httpGet"]["path"])
    assert status in (200, 503), "the path exists"
    status, *_ = pages.page(told["livenessProbe"]["httpGet"]["path"])
    assert status == 200, "whatever AWS does"
    # KEDA finds the exporter by the name and the port of its service.
    keda = yaml.safe_load((ROOT / "grafana" / "keda.yml").read_text())
    service = only("exporter.yaml", "Service")
    address = f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/lag/billing"
    assert keda["spec"]["triggers"][0]["metadata"]["url"] == address
    assert keda["spec"]["scaleTargetRef"]["name"] == only("worker.yaml", "Deployment")["metadata"]["name"]
    # A pod at a time, and not at once: the lag of a fleet that is large enough is 0.
    down = keda["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert [policy["value"] for policy in down["policies"]] == [1]
    assert down["stabilizationWindowSeconds"] >= 600


def get(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_the_command_of_the_pods_runs(account: Account, tmp_path: Path) -> None:
    """`orders.py` puts orders; the arguments of worker.yaml run `totals.py` on them, which survives a kill -9 and sets a broken order aside.

    The worker answers the probes and Prometheus, and ends at SIGTERM. Each order counts once.
    """
    account.create_stream("orders", 4)
    account.create_stream("orders-dead", 1)
    told = container("worker.yaml")
    ports = ("--health-port", "--metrics-port")
    arguments = [
        f"{name}=0" if (name := argument.partition("=")[0]) in ports else argument
        for argument in worker_arguments(tmp_path)
    ]
    database = tmp_path / "totals.db"
    worker = account.start(
        BIN / "kinesis-sdk",
        *arguments,
        folder=EXAMPLES / "docker",
        log=tmp_path / "worker.log",
        PYTHONDONTWRITEBYTECODE="1",
        DATABASE_URL=f"sqlite:///{database}",
        **{one["name"]: one["value"] for one in told["env"] if "value" in one},
    )
    producer = account.start(
        sys.executable, EXAMPLES / "docker" / "orders.py", "200", folder=tmp_path, log=tmp_path / "orders.log"
    )

    def port(path: str) -> int:
        found = re.findall(rf"http://0\.0\.0\.0:(\d+){path}\"", (tmp_path / "worker.log").read_text())
        return int(found[0]) if found else 0

    def totals() -> int:
        with contextlib.closing(sqlite3.connect(database, timeout=TIMEOUT)) as connection:
            return int(connection.execute("SELECT coalesce(sum(total), 0) FROM totals").fetchone()[0])

    def put() -> int:
        records = [record.data for record in account.records("orders")]
        return sum(json.loads(data)["total"] for data in records if data != b"broken")

    def pids() -> set[int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port('')}/status", timeout=TIMEOUT) as response:
            found = json.load(response)["processes"]
        return {process["pid"] for process in found if process["state"] == "running"}

    try:
        eventually(lambda: port(""), "no health endpoint")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = told[probe]["httpGet"]["path"]
            eventually(lambda: get(port(""), path) == 200, f"{path} does not succeed")  # noqa: B023
        eventually(lambda: totals() > 1000, "no orders are processed")
        before = pids()
        os.kill(min(before), signal.SIGKILL)
        eventually(lambda: len(pids()) == 2 and pids() != before, "the process is not replaced")
        account.client("kinesis").put_record(StreamName="orders", Data=b"broken", PartitionKey="customer-7")
        eventually(lambda: account.records("orders-dead"), "the broken order holds up its shard")
        producer.send_signal(signal.SIGTERM)
        assert producer.wait(TIMEOUT) == 0
        eventually(lambda: totals() == put(), "orders are missing")
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port('/metrics')}/metrics", timeout=TIMEOUT
        ) as response:
            metrics = response.read().decode()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(TIMEOUT) == 0
        assert totals() == put(), "each order counts once"
        (letter,) = account.records("orders-dead")
        assert "JSONDecodeError" in json.loads(letter.data)["error"]
    finally:
        for process in (producer, worker):
            process.kill()
            process.wait()
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    assert {sample.value for sample in families["kinesis_run_process_scraped"].samples} == {1.0}
    assert sum(sample.value for sample in families["kinesis_run_process_restarts"].samples) == 1
    processed = {sample.labels["process"] for sample in families["kinesis_records_processed"].samples}
    assert processed, "no process tells what it has processed"
    assert processed <= {"1", "2"}
    assert {sample.labels["process"] for sample in families["process_resident_memory_bytes"].samples} == {
        "1",
        "2",
    }


# Docker


def test_the_containers_have_commands_that_exist() -> None:
    for name in ("worker", "exporter"):
        parse(SERVICES[name]["command"])
    worker = parse(SERVICES["worker"]["command"])
    probe = re.search(r"127\.0\.0\.1:(\d+)(/\w+)", SERVICES["worker"]["healthcheck"]["test"][-1])
    assert probe is not None
    assert (int(probe[1]), probe[2]) == (worker["health_port"], "/live")
    assert worker["stop_timeout"] < seconds(SERVICES["worker"]["stop_grace_period"])
    assert ProducerConfig().record_ttl < seconds(SERVICES["producer"]["stop_grace_period"])
    assert (EXAMPLES / "docker" / SERVICES["producer"]["entrypoint"][1]).exists()
    same = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert SERVICES["localstack"]["image"] == same["services"]["localstack"]["image"]


def test_the_stream_is_created_once(account: Account, tmp_path: Path) -> None:
    for _ in range(2):
        process = account.start(
            *SERVICES["stream"]["entrypoint"], folder=tmp_path, PATH=f"{BIN}:{os.environ['PATH']}"
        )
        printed, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, printed
    assert len(account.client("kinesis").list_shards(StreamName="orders")["Shards"]) == 4


def mounts() -> dict[str, Path]:
    """Files of the repository by their path in a container."""
    found = {}
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source, target, mode = volume.split(":")
            assert mode == "ro"
            found[target] = (EXAMPLES / "docker" / source).resolve()
    return found


def test_every_mounted_file_exists() -> None:
    assert all(path.exists() for path in mounts().values())
    for service in SERVICES.values():
        for other in service.get("depends_on", ()):
            assert other in SERVICES


def test_the_image_has_what_the_package_is_built_from() -> None:
    """`Dockerfile` and `Dockerfile.dockerignore`: every copied file exists, and is in the context of the build."""
    text = (EXAMPLES / "docker" / "Dockerfile").read_text()
    ignore = (EXAMPLES / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignore
    kept = [line[1:] for line in ignore if line.startswith("!")]
    assert all(list(ROOT.glob(pattern)) for pattern in kept)
    project = (ROOT / "pyproject.toml").read_text()
    packages = re.findall(r'"([\w-]+)"', re.findall(r"^packages = \[(.*)\]$", project, re.MULTILINE)[0])
    (readme,) = re.findall(r'^readme = "(.*)"$', project, re.MULTILINE)
    (licence,) = re.findall(r'^license-files = \["(.*)"\]$', project, re.MULTILINE)
    assert {*packages, readme, licence, "pyproject.toml"} <= {*kept}
    for line in re.findall(r"^COPY (examples/.*) \S+$", text, re.MULTILINE):
        for path in line.split():
            assert (ROOT / path).exists(), path
            assert any(fnmatch.fnmatch(path, pattern) for pattern in kept), path
    (extras,) = re.findall(r"'/src\[([\w,]+)\]'", text)
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra


# Prometheus and Grafana


def test_prometheus_asks_the_exporter_and_the_workers() -> None:
    """`prometheus.yaml`: the hosts are services, the ports are theirs, the rules are mounted."""
    job, workers = PROMETHEUS["scrape_configs"]
    ((service,),) = [one["names"] for one in workers["dns_sd_configs"]]
    options = parse(SERVICES[service]["command"])
    assert options["metrics_port"] == workers["dns_sd_configs"][0]["port"]
    assert options["metrics_host"] == "0.0.0.0"
    ((target,),) = [one["targets"] for one in job["static_configs"]]
    host, _, port = target.partition(":")
    assert parse(SERVICES[host]["command"])["port"] == int(port)
    assert PROMETHEUS["rule_files"] == [
        target for target, path in mounts().items() if path == ROOT / "grafana" / "alerts.yml"
    ]
    assert mounts()["/etc/prometheus/prometheus.yml"] == EXAMPLES / "monitoring" / "prometheus.yaml"


def test_grafana_finds_the_data_source_and_the_dashboard() -> None:
    """`datasources/prometheus.yaml` and `dashboards/kinesis.yaml`, where Grafana looks for them."""
    folder = mounts()["/etc/grafana/provisioning"]
    sources = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())
    (source,) = sources["datasources"]
    wanted = json.loads((ROOT / "grafana" / "dashboard.json").read_text())["templating"]["list"]
    assert source["type"] == next(one["query"] for one in wanted if one["type"] == "datasource")
    assert source["isDefault"]
    host, _, port = source["url"].removeprefix("http://").partition(":")
    assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]
    dashboards = yaml.safe_load((folder / "dashboards" / "kinesis.yaml").read_text())
    (provider,) = dashboards["providers"]
    assert sources["apiVersion"] == dashboards["apiVersion"] == 1
    assert provider["type"] == "file"
    mounted = [
        Path(target).parent.as_posix()
        for target, path in mounts().items()
        if path == ROOT / "grafana" / "dashboard.json"
    ]
    assert mounted == [provider["options"]["path"]]
