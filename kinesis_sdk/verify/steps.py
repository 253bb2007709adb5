"""All steps of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.verify import contracts, journeys
from kinesis_sdk.verify.notes import Notes
from kinesis_sdk.verify.scripts import dynamodb, kinesis, table_streams


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a run.

    Attributes:
        name: Its name.
        group: Name of its group.
        about: Description of the step.
        run: Finds facts.
        expected: Values that facts must have; None for a script, whose facts are compared with the facts of the fake.
        units: Maximum units that the step uses, by the names of `prices.PRICES`; None for a script, which first runs on the fake.
        is_counted: Whether its calls are counted one by one. If not, the step's units are billed before it begins.
    """

    name: str
    group: str
    about: str
    run: Callable[[Notes], None]
    expected: Mapping[str, Any] | None = None
    units: Mapping[str, float] | None = None
    is_counted: bool = True


def _scripts() -> list[Step]:
    return [
        Step(
            f"{group}-{name.removeprefix('scenario_').replace('_', '-')}",
            group,
            str(function.__doc__).removesuffix("."),
            function,
        )
        for group, module in (("kinesis", kinesis), ("dynamodb", dynamodb), ("table-streams", table_streams))
        for name, function in vars(module).items()
        if name.startswith("scenario_")
    ]


STEPS: tuple[Step, ...] = (
    *_scripts(),
    Step(
        "lease-store",
        "contracts",
        "Check the rules of lease stores on a table",
        contracts.lease_store,
        contracts.LEASE_STORE,
        contracts.LEASE_STORE_UNITS,
    ),
    Step(
        "sink",
        "contracts",
        "Check the rules of sinks in transactions on tables",
        contracts.sink,
        contracts.SINK,
        contracts.SINK_UNITS,
    ),
    Step(
        "reshard",
        "journeys",
        "Put, and read with two workers, through a split and a merge",
        journeys.reshard,
        journeys.RESHARD,
        journeys.RESHARD_UNITS,
        is_counted=False,
    ),
    Step(
        "fan-out",
        "journeys",
        "Put, and read by enhanced fan-out",
        journeys.fan_out,
        journeys.FAN_OUT,
        journeys.FAN_OUT_UNITS,
        is_counted=False,
    ),
    Step(
        "idempotence",
        "journeys",
        "Put with responses that are cut off, and read each record once",
        journeys.idempotence,
        journeys.IDEMPOTENCE,
        journeys.IDEMPOTENCE_UNITS,
        is_counted=False,
    ),
)
"""All steps, in the order in which they run."""


def chosen(only: Collection[str] = ()) -> list[Step]:
    """Return steps by their names or the names of their groups; all steps if no name is given.

    Raises:
        ConfigError: If a step or group does not exist.
    """
    names = {step.name for step in STEPS} | {step.group for step in STEPS}
    for one in only:
        if one not in names:
            raise ConfigError("only", one, f"one of {', '.join(sorted(names))}")
    return [step for step in STEPS if not only or step.name in only or step.group in only]
