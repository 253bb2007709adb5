"""`Verification`: one run in one account, with its plan and price, its steps, and the removal of its streams and tables."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

from botocore.config import Config

from kinesis_sdk._version import __version__
from kinesis_sdk.admin import Connection
from kinesis_sdk.common.aws import make_client
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.testing import FakeAws, VirtualClock
from kinesis_sdk.verify.meter import LimitReachedError, Meter
from kinesis_sdk.verify.notes import Notes, shown
from kinesis_sdk.verify.prices import PRICES, factor
from kinesis_sdk.verify.report import Cost, Report, Status, StepResult, judge
from kinesis_sdk.verify.scratch import Removal, Remover, Scratch, new_run
from kinesis_sdk.verify.steps import Step, chosen

SERVICES = ("kinesis", "dynamodb", "dynamodbstreams")
_NO_LIMIT = 1e9
_TIMEOUT = 300.0
_READ_TIMEOUT = 60.0
"""Seconds. If a call timed out early, the facts of this run would differ from the facts of all other runs."""

Tell = Callable[[str], None]
"""Called with a sentence about the progress."""


@dataclass(frozen=True)
class Rehearsal:
    """Facts and units of a step; the facts of a script are found on the fake, in virtual time.

    Attributes:
        facts: Facts by name. For a step that is not a script, the facts that must hold.
        units: Billed units, by the names of the table of prices.
        calls: Calls by operation.
    """

    facts: Mapping[str, Any]
    units: Mapping[str, float]
    calls: Mapping[str, int]


@cache
def rehearse(step: Step) -> Rehearsal:
    """Return the facts that a script finds on the fake, and the units that it uses there. Other steps state facts and units."""
    if step.expected is not None:
        return Rehearsal(step.expected, step.units or {}, {})
    clock = VirtualClock()
    aws = FakeAws(clock=clock, throttle=False, sleep=clock.advance)
    meter = Meter(max_usd=_NO_LIMIT, max_seconds=_NO_LIMIT, clock=clock)
    clients = {service: aws.client(service) for service in SERVICES}
    notes = Notes(Scratch(clients, run="0" * 8, meter=meter, sleep=clock.advance), clock=clock)
    step.run(notes)
    return Rehearsal(notes.facts, meter.units(), meter.calls)


@dataclass(frozen=True)
class PlannedStep:
    """A step of a plan.

    Attributes:
        name: Its name.
        about: Description of the step.
        usd: Maximum cost of the step.
        units: Units that are billed for the step, by the names of the table of prices.
    """

    name: str
    about: str
    usd: float
    units: Mapping[str, float]


@dataclass(frozen=True)
class Plan:
    """Plan of a run, with its price.

    Attributes:
        region: Region.
        run: Id of the run.
        steps: Its steps.
        usd: Maximum cost of all steps.
        max_usd: Amount at which the run stops.
        max_seconds: Time after which it stops.
        factor: Factor of the prices in this region.
    """

    region: str
    run: str
    steps: tuple[PlannedStep, ...]
    usd: float
    max_usd: float
    max_seconds: float
    factor: float


class Verification:
    """A run in one account and region.

    Args:
        connection: Account and region.
        only: Names of steps or of their groups; all if empty.
        max_usd: Amount that the run may cost.
        max_seconds: Time that the run may take, without the removal.
        service: Kind of service that the connection leads to.
        run: Id of the run; None generates a new id.
        clock: Clock; replaced in tests.
        sleep: Called with the seconds to wait; replaced in tests.

    Attributes:
        run_id: Id of the run, in the names and tags of everything that it creates.
        is_clean: Whether no stream or table of the run is left: false from its first step until all are removed.

    Raises:
        ConfigError: If a step does not exist.
        AwsConfigError: If there is no region.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        only: Collection[str] = (),
        max_usd: float = 1.0,
        max_seconds: float = 3600.0,
        service: Literal["aws", "endpoint", "fake"] = "aws",
        run: str | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.run_id: str = run or new_run()
        self._connection = connection
        self._steps = chosen(only)
        self._max_usd = max_usd
        self._max_seconds = max_seconds
        self._service: Literal["aws", "endpoint", "fake"] = service
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._region = str(connection.kinesis.meta.region_name)
        self._rehearsals = {step.name: rehearse(step) for step in self._steps}
        self._scratch: Scratch | None = None
        self.is_clean: bool = True

    def plan(self) -> Plan:
        """Return the steps and their costs. Makes no call."""
        times = factor(self._region)
        steps = tuple(
            PlannedStep(
                step.name,
                step.about,
                sum(amount * PRICES[name].usd for name, amount in self._rehearsals[step.name].units.items())
                * times,
                self._rehearsals[step.name].units,
            )
            for step in self._steps
        )
        return Plan(
            self._region,
            self.run_id,
            steps,
            sum(step.usd for step in steps),
            self._max_usd,
            self._max_seconds,
            times,
        )

    def run(self, tell: Tell = lambda _: None) -> Report:
        """Run the steps, remove the streams and tables that they created, and return the results.

        All created streams and tables are removed when the steps end, even after an exception or Ctrl-C. After an exception during the
        removal, such as a second Ctrl-C, some of them are left; `Remover` finds these later.

        Args:
            tell: Called with a sentence about the progress.
        """
        scratch = self._scratch = Scratch(
            self._script_clients(),
            {service: self._connection.client(service) for service in SERVICES},
            run=self.run_id,
            meter=Meter(
                max_usd=self._max_usd,
                max_seconds=self._max_seconds,
                clock=self._clock,
                factor=factor(self._region),
            ),
            sleep=self._sleep,
        )
        results: list[StepResult] = []
        self.is_clean = False
        try:
            for number, step in enumerate(self._steps, 1):
                tell(f"{number}/{len(self._steps)} {step.name} ({scratch.meter.usd:.3f} USD so far)")
                results.append(self._result(step, scratch))
                if results[-1].status == "stopped":
                    tell(f"stopped: {results[-1].problem}")
                    break
        except BaseException:
            tell("interrupted: what was made is being removed; another Ctrl-C leaves it there")
            raise
        finally:
            left = self._clean(tell)
        return Report(
            service=self._service,
            region=self._region,
            date=datetime.fromtimestamp(self._clock.time(), timezone.utc).date().isoformat(),
            versions=_versions(),
            complete=len(results) == len(self._steps) and results[-1].status != "stopped",
            removed=scratch.count - left,
            left=left,
            steps=tuple(results),
            cost=Cost(scratch.meter.usd, self._max_usd, scratch.meter.units(), scratch.meter.calls),
        )

    def _clean(self, tell: Tell) -> int:
        """Remove the streams and tables of this run; return the number of those that are left.

        A removal that fails must not prevent the report.
        """
        try:
            return len(self.remove(tell).left)
        except KinesisSdkError as error:
            tell(f"the removal failed: {error}")
            return 0 if self._scratch is None else self._scratch.count

    def remove(self, tell: Tell = lambda _: None) -> Removal:
        """Remove the streams and tables of this run, and wait until they no longer exist. May be called again.

        Args:
            tell: Called with a sentence about the progress.

        Raises:
            AwsError: If a call fails.
        """
        made = [] if self._scratch is None else self._scratch.made
        remover = Remover(self._connection, clock=self._clock, sleep=self._sleep)
        removal = remover.remove(self.run_id, also=made, timeout=_TIMEOUT, tell=tell)
        self.is_clean = not removal.left
        return removal

    def _script_clients(self) -> dict[str, Any]:
        """Return clients that do not validate requests, so that the service, not botocore, rejects invalid requests."""
        if self._service == "fake":
            return {service: self._connection.client(service) for service in SERVICES}
        place = self._connection
        return {
            service: make_client(
                service,
                session=place.session,
                region_name=place.region,
                endpoint_url=place.endpoint_url,
                config=Config(parameter_validation=False),
                read_timeout=_READ_TIMEOUT,
            )
            for service in SERVICES
        }

    def _result(self, step: Step, scratch: Scratch) -> StepResult:
        """Run a step; delete the streams and tables that it created. Any error except Ctrl-C becomes the result."""
        notes = Notes(scratch, clock=self._clock, poll=1.0 if self._service == "aws" else 0.1)
        began = self._clock.monotonic()
        status: Status
        problem = ""
        try:
            if not step.is_counted:
                units = dict(step.units or {})
                del units["shard_hour"]  # billed when a stream is made
                scratch.meter.reserve(**units)
            step.run(notes)
            status = "passed"
        except LimitReachedError as error:
            status, problem = "stopped", str(error)
        except Exception as error:  # noqa: BLE001 - what a script trips over at a service is a result, and others follow
            status, problem = "failed", f"{type(error).__name__}: {shown(str(error), scratch.prefix)[:500]}"
        finally:
            scratch.discard()
        differences = judge(notes.facts, self._rehearsals[step.name].facts, exact=step.expected is None)
        if status == "passed" and step.expected is None:
            status = "differs" if differences else "same"
        elif status == "passed" and differences:
            status = "failed"
        return StepResult(
            step.name,
            status,
            round(self._clock.monotonic() - began, 1),
            notes.facts,
            differences if status != "stopped" else (),
            problem,
        )


def _versions() -> dict[str, str]:
    return {
        "kinesis-sdk": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("boto3", "botocore")},
    }
