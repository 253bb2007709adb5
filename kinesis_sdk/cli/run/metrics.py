"""Metrics of all worker processes at one address, for Prometheus.

For a scrape, the supervisor asks each process through its pipe, and joins the responses: every series gets the label ``process``, the
number of the process. A process that does not respond in time is left out; ``kinesis_run_process_scraped`` reports this.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from kinesis_sdk.common.page_server import Page, PageServer

if TYPE_CHECKING:
    from kinesis_sdk.cli.run.processes import ChildProcess
    from kinesis_sdk.metrics import PrometheusMetrics

_LOGGER = logging.getLogger(__name__)

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ANSWER_SECONDS = 4.0
"""Seconds for the answers of all processes. Prometheus waits 10 s by default."""


class ProcessMetrics:
    """Metrics of a worker process: those of its worker (through ``sink``) and those of the process itself.

    Raises:
        ImportError: If ``prometheus_client`` is not installed.
    """

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        from kinesis_sdk.metrics import PrometheusMetrics

        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.sink: PrometheusMetrics = PrometheusMetrics(self._registry)

    def text(self) -> str:
        """Return the metrics in the text format of Prometheus."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry).decode()


def joined(texts: Mapping[int, str]) -> str:
    """Join the texts of several processes, given by number: each family occurs once, and each series has the label ``process``."""
    heads: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for number, text in texts.items():
        label, family, is_new = f'process="{number}"', "", False
        described: set[str] = set()
        for line in text.splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                if family not in described:
                    described.add(family)
                    is_new = family not in heads
                if is_new:
                    heads.setdefault(family, []).append(line)
            elif line:
                series.setdefault(family, []).append(_labelled(line, label))
    return "".join("\n".join([*head, *series.get(family, ())]) + "\n" for family, head in heads.items())


def _labelled(line: str, label: str) -> str:
    """Return a series with another label. Names contain neither braces nor spaces."""
    brace, space = line.find("{"), line.find(" ")
    if 0 <= brace < space:
        return f"{line[: brace + 1]}{label},{line[brace + 1 :]}"
    return f"{line[:space]}{{{label}}}{line[space:]}"


class SupervisorMetrics:
    """The endpoint. The supervisor's loop calls `observe` and `on_report`; the server's threads serve the pages.

    ``port`` 0 chooses a free port; with None, there is no endpoint. ``restarts`` returns the number of restarts of each process, by its
    number.
    """

    def __init__(
        self,
        host: str,
        port: int | None,
        restarts: Callable[[], Mapping[int, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = None if port is None else (host, port)
        self._restarts = restarts
        self._clock = clock
        self._changed = threading.Condition()
        self._running: dict[int, ChildProcess] = {}
        self._scrapes = 0
        # Answers to waiting scrapes, by the number of the scrape and of the process.
        self._answers: dict[int, dict[int, str]] = {}
        self.server: PageServer | None = None

    def __enter__(self) -> SupervisorMetrics:
        """Open the endpoint.

        Raises:
            ConfigError: If the endpoint cannot listen at this address.
        """
        if self._address is not None:
            host, port = self._address
            self.server = PageServer(self.page, host, port, setting="metrics_port")
            _LOGGER.info("metrics at http://%s:%d/metrics", host, self.server.port)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the endpoint."""
        if self.server is not None:
            self.server.close()

    def observe(self, running: Mapping[int, ChildProcess]) -> None:
        """Note which processes run."""
        with self._changed:
            if self._running != running:
                self._running = dict(running)
                self._changed.notify_all()

    def on_report(self, process: int, number: int, text: str) -> None:
        """Note the answer of a process to a scrape."""
        with self._changed:
            # A scrape that no longer waits has no entry.
            if number in self._answers:
                self._answers[number][process] = text
                self._changed.notify_all()

    def page(self, path: str) -> Page:
        """Return the page of a path."""
        if path.partition("?")[0] != "/metrics":
            return Page(404, "text/plain; charset=utf-8", b"there is /metrics\n")
        texts, asked = self._ask()
        return Page(200, _CONTENT_TYPE, (joined(texts) + self._own(texts, asked)).encode())

    def _ask(self) -> tuple[dict[int, str], list[int]]:
        """Return the responses of the processes, and the numbers of all processes that got a request."""
        with self._changed:
            self._scrapes += 1
            number = self._scrapes
            asked = dict(self._running)
            answers = self._answers[number] = {}
        try:
            for child in asked.values():
                child.request_metrics(number)
            deadline = self._clock() + _ANSWER_SECONDS
            with self._changed:
                # A process that has ended meanwhile does not answer.
                while any(
                    process not in answers and self._running.get(process) is child
                    for process, child in asked.items()
                ):
                    left = deadline - self._clock()
                    if left <= 0:
                        break
                    self._changed.wait(left)
                return dict(sorted(answers.items())), sorted(asked)
        finally:
            with self._changed:
                del self._answers[number]

    def _own(self, texts: Mapping[int, str], asked: Iterable[int]) -> str:
        lines = [
            "# HELP kinesis_run_process_scraped Whether the worker process answered this scrape.",
            "# TYPE kinesis_run_process_scraped gauge",
            *(
                f'kinesis_run_process_scraped{{process="{number}"}} {int(number in texts)}'
                for number in asked
            ),
            "# HELP kinesis_run_process_restarts_total How often the worker process was started again after it had ended.",
            "# TYPE kinesis_run_process_restarts_total counter",
            *(
                f'kinesis_run_process_restarts_total{{process="{number}"}} {count}'
                for number, count in self._restarts().items()
            ),
        ]
        return "\n".join(lines) + "\n"
