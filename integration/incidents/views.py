"""The views of an application as their users have them: commands that are repeated, and views that stay open.

Each answer is reduced to the codes of the problems it names, its whole text, the largest lag it shows, and whether it
claims that there is no problem.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from integration import prometheus
from integration.commands import CLI, execute
from integration.incidents.fleet import APPLICATION, STREAM, TARGET, Child, Fleet

VIEWS = ("explain", "show", "lag", "top", "console", "exporter", "alerts", "doctor", "ready", "log")
"""The columns of the table. `alerts` is a real Prometheus; `ready` and `log` come from `kinesis-sdk run`."""
BEHIND = 60.0
"""A view that shows a lag of this many seconds must not claim that there is no problem."""
_PATIENCE = 120.0
"""A command that runs for longer than this many seconds counts as hanging."""


@dataclass(frozen=True)
class Answer:
    """Answer of a view.

    Attributes:
        at: When it arrived, on the monotonic clock.
        codes: Codes of problems, findings or alerts.
        text: Its whole text.
        lag: Largest lag, in seconds; None if it shows none.
        is_calm: Whether it claims that there is no problem.
    """

    at: float
    codes: frozenset[str] = frozenset()
    text: str = ""
    lag: float | None = None
    is_calm: bool = False


def of_fleet(view: Mapping[str, Any]) -> Answer:
    """Read the JSON of a whole fleet."""
    millis = view["totals"]["worst_lag_millis"]
    problems = view["problems"]
    return Answer(
        time.monotonic(),
        frozenset(problem["code"] for problem in problems) | ({"error"} if view["error"] else set()),
        f"{view['error']} {json.dumps([problems, view['moves'][:20]], ensure_ascii=False)}",
        None if millis is None else millis / 1000,
        not problems and not view["error"],
    )


def of_explanation(answer: Mapping[str, Any]) -> Answer:
    """Read the JSON of `leases explain`."""
    text = " ".join(answer["explanation"])
    lag = answer["lease"].get("lag")
    return Answer(
        time.monotonic(),
        frozenset(re.findall(r"Problem \(([\w-]+)\)", text)),
        text,
        None if lag is None else lag["millis"] / 1000,
        "No problem was found" in text,
    )


def of_findings(report: Mapping[str, Any]) -> Answer:
    """Read the JSON of `doctor`: the red and yellow findings."""
    bad = [finding for finding in report["findings"] if finding["level"] in ("red", "yellow")]
    return Answer(
        time.monotonic(),
        frozenset(finding["code"] for finding in bad),
        json.dumps(bad, ensure_ascii=False),
    )


def of_picture(picture: Mapping[str, Any]) -> Answer:
    """Read the picture that the console sends to its page."""
    return of_fleet({**picture, "totals": picture["head"]["totals"], "error": picture["head"]["error"]})


_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


def of_metrics(text: str) -> Answer:
    """Read the exporter's metrics."""
    codes: set[str] = set()
    lag = None
    for name, labels, value in _SAMPLE.findall(text):
        number = float(value)
        if name == "kinesis_fleet_problems" and number:
            codes.add(re.findall(r'code="([^"]*)"', labels)[0])
        elif name == "kinesis_fleet_worst_lag_seconds":
            lag = number
        elif (name, number) in (("kinesis_fleet_up", 0.0), ("kinesis_fleet_abandoned", 1.0)):
            codes.add(name.removeprefix("kinesis_fleet_"))
        elif name == "kinesis_fleet_moves_total" and number:
            codes.update(f"moves-{reason}" for reason in re.findall(r'reason="([^"]*)"', labels))
    return Answer(time.monotonic(), frozenset(codes), text, lag, not codes and lag is not None)


def of_alerts(alerts: list[dict[str, Any]]) -> Answer:
    """Read the alerts of Prometheus."""
    return Answer(
        time.monotonic(), frozenset(alert["labels"]["alertname"] for alert in alerts), json.dumps(alerts)
    )


@dataclass
class View:
    """A view with its answers.

    Attributes:
        name: One of `VIEWS`.
        ask: Asks once; returns None if there is no answer yet.
        pause: Seconds between two questions.
        answers: So far, oldest first.
        failure: Why asking failed; None if it did not.
    """

    name: str
    ask: Callable[[], Answer | None]
    pause: float
    answers: list[Answer] = field(default_factory=list)
    failure: str | None = None


class Watch:
    """Asks the views `names` of a fleet, each on its own thread, until it is closed. A context manager."""

    def __init__(self, fleet: Fleet, names: tuple[str, ...]) -> None:
        self._fleet = fleet
        self._names = names
        self._over = threading.Event()
        self._stack = contextlib.ExitStack()
        self._threads: list[threading.Thread] = []
        self._exporter_url: str | None = None
        self.views: dict[str, View] = {}

    def __enter__(self) -> Watch:
        try:
            for name in self._names:
                self.views[name] = View(name, *self._make(name))
            # Views that stay open have been open for a while when an incident begins.
            self._stack.callback(self.stop)
            for view in self.views.values():
                thread = threading.Thread(target=self._watch, args=(view,), name=view.name, daemon=True)
                self._threads.append(thread)
                thread.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def stop(self) -> None:
        """Stop asking, and wait for the questions in progress."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * _PATIENCE)

    def _watch(self, view: View) -> None:
        while not self._over.is_set():
            try:
                answer = view.ask()
            except Exception as error:  # noqa: BLE001 - a view that breaks is a result
                view.failure = f"{type(error).__name__}: {error}"
                return
            if answer is not None:
                view.answers.append(answer)
            self._over.wait(view.pause)

    def _make(self, name: str) -> tuple[Callable[[], Answer | None], float]:
        """Return the function that asks a view, and the pause between two questions."""
        fleet = self._fleet
        endpoint = ("--endpoint-url", fleet.endpoint_url, "--json")
        if name in ("explain", "show", "lag", "doctor"):
            arguments, read = {
                "explain": (("leases", "explain", APPLICATION, TARGET), of_explanation),
                "show": (("leases", "show", APPLICATION), of_fleet),
                "lag": (("lag", APPLICATION), of_fleet),
                "doctor": (("doctor", STREAM, APPLICATION), of_findings),
            }[name]
            return lambda: self._run((*arguments, *endpoint), read), 1.0
        if name == "top":
            top = self._start("top", "top", APPLICATION, *endpoint)
            return lambda: None if (line := top.newest()) is None else of_fleet(line), 0.5
        if name == "console":
            console = self._start("ui", "ui", APPLICATION, "--port", "0", *endpoint)
            url = str(console.wait_for(lambda line: "url" in line)["url"])
            # One page stays open, so that the console goes on scanning. Each question opens another page, which gets a whole picture.
            self._stack.enter_context(contextlib.closing(_events(url)))
            return lambda: _picture(url), 0.5
        if name == "exporter":
            url = self._exporter()
            return lambda: of_metrics(_get(url)[1]), 0.5
        if name == "alerts":
            running = self._stack.enter_context(
                prometheus.start_prometheus(
                    fleet.folder, {"fleet": self._exporter(), "workers": fleet.metrics_url}
                )
            )
            return lambda: of_alerts(running.alerts()), 1.0
        if name == "ready":
            return self._ready, 0.5
        return self._log, 0.5

    def _ready(self) -> Answer:
        try:
            status, text = _get(f"{self._fleet.health_url}/ready")
        except (urllib.error.URLError, ConnectionError) as error:
            # A stopping worker resets the connections that it has accepted but not served yet.
            return Answer(time.monotonic(), frozenset({"refused"}), str(error))
        return Answer(time.monotonic(), frozenset({f"{status}"}), text)

    def _log(self) -> Answer:
        return Answer(time.monotonic(), text=self._fleet.logs())

    def _exporter(self) -> str:
        """Start the exporter, or return the address of the running one."""
        if self._exporter_url is None:
            exporter, self._exporter_url = self._fleet.start_exporter()
            self._stack.callback(exporter.end)
        return self._exporter_url

    def _start(self, name: str, *arguments: str) -> Child:
        child = Child((*CLI, *arguments), self._fleet.folder / f"{name}.log", self._fleet.folder)
        self._stack.callback(child.end)
        return child

    def _run(self, arguments: tuple[str, ...], read: Callable[[Mapping[str, Any]], Answer]) -> Answer | None:
        try:
            result = execute((*CLI, *arguments), timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            return Answer(time.monotonic(), frozenset({"hangs"}))
        if not result.stdout.strip():
            return Answer(time.monotonic(), frozenset({f"exit-{result.returncode}"}), result.stderr)
        answer = read(json.loads(result.stdout))
        return Answer(answer.at, answer.codes, f"{answer.text} {result.stderr}", answer.lag, answer.is_calm)


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _events(url: str) -> Any:
    request = urllib.request.Request(f"{url}api/applications/{APPLICATION}/events")
    return urllib.request.urlopen(request, timeout=_PATIENCE)


def _picture(url: str) -> Answer | None:
    """Return the whole picture that a new page receives."""
    with contextlib.closing(_events(url)) as events:
        kind = None
        for raw in _lines(events):
            if raw.startswith("event: "):
                kind = raw.removeprefix("event: ")
            elif raw.startswith("data: ") and kind == "picture":
                return of_picture(json.loads(raw.removeprefix("data: ")))
    return None


def _lines(events: Any) -> Iterator[str]:
    for line in events:
        yield line.decode().rstrip("\n")
