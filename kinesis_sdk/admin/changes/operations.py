"""The changes of a live application: their names, their parameters, and how each is planned. Command line, terminal view and console only lay them out.

```python
desk = Desk(application=Application(Connection(region="eu-west-1"), "billing"))
planned = OPERATIONS["rewind"].plan(desk, to=datetime(2026, 11, 21, 9, tzinfo=timezone.utc))
for write in planned.told.writes:
    print(write.row, write.lines)
planned.apply()
```
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import AfterSequence, AtSequence
from kinesis_sdk.common.position_text import parse_position
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

if TYPE_CHECKING:
    from kinesis_sdk.admin.changes.desk import Desk
    from kinesis_sdk.admin.changes.positions import Start
    from kinesis_sdk.admin.changes.told import Planned


class Danger(str, Enum):
    """The worst that a change does if it was not meant."""

    NONE = "none"
    REPEATS = "records are processed again"
    SKIPS = "records are left out"
    MOVES = "leases change their owner"
    DELETES = "a row is lost"
    DELETES_ALL = "all positions are lost"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a change.

    Attributes:
        name: Its name in `Operation.plan`.
        option: Its name on the command line and in requests; by default its name.
        help: What it means.
        placeholder: What stands for its value in texts.
        expected: What a value has to be, for the error if it is missing.
        parse: Returns the value of a text, given epoch seconds; None for a parameter that is the text itself.
        many: Whether it takes several values.
        required: Whether it must be given.
        is_flag: Whether it is given or not, without a value.
        is_argument: Whether it follows the application on the command line, without its name.
    """

    name: str
    option: str = ""
    help: str = ""
    placeholder: str = ""
    expected: str = ""
    parse: Callable[[str, float], Any] | None = None
    many: bool = False
    required: bool = True
    is_flag: bool = False
    is_argument: bool = False

    def value_of(self, given: object, *, now: float) -> Any:
        """Return the value that a form or a request gives.

        Raises:
            ConfigError: If it is missing or not accepted.
        """
        field = self.option or self.name
        if self.is_flag:
            return bool(given)
        if self.many:
            return tuple(given) if isinstance(given, Collection) and not isinstance(given, str) else ()
        if not isinstance(given, str) or not given:
            if self.required:
                raise ConfigError(field, given, self.expected)
            return None
        return given if self.parse is None else self.parse(given, now)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A change of a live application.

    Attributes:
        verb: Its name.
        group: The group of commands that it belongs to: ``leases`` or ``worker``.
        parameters: Its parameters.
        home: Module of this package and function that plans it, given a desk and the parameters by name: it is imported when it is needed.
        danger: The worst that it does.
        wait: How long it is watched by default, such as ``60s``; empty if it is done when it is written.
        waits_for: What is waited for, for the help of the option.
    """

    verb: str
    group: str = "leases"
    parameters: tuple[Parameter, ...]
    home: str
    danger: Danger
    wait: str = ""
    waits_for: str = (
        "How long to wait until the owners act on the change; the change goes on. 0s does not wait."
    )

    def plan(self, desk: Desk, **values: Any) -> Planned:
        """Plan the change. Nothing is written.

        Args:
            desk: The application.
            values: The parameters.

        Raises:
            ConfigError: If a value is not accepted, or the application or its stream is not known.
            ChangeRefusedError: If the change would not be safe, as far as that is known without reading positions.
            AwsError: If a call failed; of another database a `LeaseStoreError`.
        """
        module, _, name = self.home.partition(":")
        planned: Planned = getattr(import_module(f"{__package__}.{module}"), name)(desk, **values)
        return planned

    def plan_texts(self, desk: Desk, given: Mapping[str, object]) -> Planned:
        """Plan the change as `plan`, with values as a form or a request gives them.

        Args:
            desk: The application.
            given: Texts, lists of texts and flags by the name of the option; others are left alone.
        """
        now = desk.clock.time()
        values = {
            one.name: one.value_of(given.get(one.option or one.name), now=now) for one in self.parameters
        }
        return self.plan(desk, **values)


def _rewind_start(text: str, now: float) -> Start:
    from kinesis_sdk.admin.changes.positions import REWIND_STARTS, parse_start

    return parse_start(text, REWIND_STARTS, now=now)


def _skip_start(text: str, now: float) -> Start:
    from kinesis_sdk.admin.changes.positions import SKIP_STARTS, parse_start

    return parse_start(text, SKIP_STARTS, now=now)


def _record(text: str, now: float) -> ExtendedSequenceNumber:
    """Return the record that comes first at a position of the form ``at:``."""
    position = parse_position(text, field="record", now=now, accepted=(AtSequence,))
    before = position.sub_sequence_number if isinstance(position, AfterSequence) else None
    assert isinstance(position, (AtSequence, AfterSequence))
    return ExtendedSequenceNumber(position.sequence_number, 0 if before is None else before + 1)


def _to(help_text: str, parse: Callable[[str, float], Any]) -> Parameter:
    return Parameter(name="to", help=help_text, placeholder="START", expected="a position", parse=parse)


_SOME_SHARDS = Parameter(
    name="shards",
    option="shard",
    help="Only this shard, for example 3; may be given several times.",
    placeholder="SHARD",
    many=True,
    required=False,
)
_SHARDS = Parameter(
    name="shards",
    option="shard",
    help="The shard; may be given several times.",
    placeholder="SHARD",
    many=True,
)
_SHARD = Parameter(
    name="shard", help="The shard.", placeholder="SHARD", expected="the shard, or the key of its lease"
)
_TO_WORKER = Parameter(
    name="worker",
    option="to",
    help="Id of the worker.",
    placeholder="WORKER",
    expected="the id of a worker",
)
_WORKER = Parameter(name="worker", placeholder="WORKER", expected="the id of a worker", is_argument=True)
_SWAP = Parameter(
    name="swap",
    help="Give one of the worker's leases to the present owner in return; for one shard.",
    required=False,
    is_flag=True,
)

OPERATIONS: Mapping[str, Operation] = {
    one.verb: one
    for one in (
        Operation(
            verb="rewind",
            parameters=(
                _to(
                    "A time (2026-11-21T09:00:00Z, or -15m: so long ago), TRIM_HORIZON, LATEST, or a record (at:<sequence number>).",
                    _rewind_start,
                ),
                _SOME_SHARDS,
            ),
            home="lease_change:change_by_rewind",
            danger=Danger.REPEATS,
            wait="60s",
        ),
        Operation(
            verb="skip-to",
            parameters=(
                _to(
                    "A time, LATEST, the first record to process (at:<sequence number>), or the last one to skip (after:<sequence number>).",
                    _skip_start,
                ),
                _SOME_SHARDS,
            ),
            home="lease_change:change_by_skip",
            danger=Danger.SKIPS,
            wait="60s",
        ),
        Operation(
            verb="release",
            parameters=(_SHARDS,),
            home="lease_change:change_by_release",
            danger=Danger.MOVES,
            wait="60s",
        ),
        Operation(
            verb="move",
            parameters=(_SHARDS, _TO_WORKER, _SWAP),
            home="lease_change:change_by_move",
            danger=Danger.MOVES,
            wait="60s",
        ),
        Operation(verb="pin", parameters=(_SHARD, _TO_WORKER), home="marks:plan_pin", danger=Danger.MOVES),
        Operation(verb="unpin", parameters=(_SHARD,), home="marks:plan_unpin", danger=Danger.MOVES),
        Operation(
            verb="retry", parameters=(_SHARD,), home="requests:plan_retry", danger=Danger.NONE, wait="60s"
        ),
        Operation(
            verb="skip-record",
            parameters=(
                _SHARD,
                Parameter(
                    name="record",
                    help="at:<sequence number>[/<index>] of the record [default: the one on which the handler fails].",
                    placeholder="POSITION",
                    parse=_record,
                    required=False,
                ),
            ),
            home="requests:plan_skip_record",
            danger=Danger.SKIPS,
            wait="60s",
        ),
        Operation(
            verb="import",
            parameters=(Parameter(name="export", placeholder="FILE", is_argument=True),),
            home="lease_change:change_by_import",
            danger=Danger.SKIPS,
            wait="60s",
        ),
        Operation(
            verb="delete-row",
            parameters=(
                Parameter(
                    name="row",
                    help="Key of the row, or the number of its shard.",
                    placeholder="KEY",
                    expected="the key of a row",
                ),
            ),
            home="deletions:plan_row_deletion",
            danger=Danger.DELETES,
        ),
        Operation(
            verb="delete-app", parameters=(), home="deletions:plan_app_deletion", danger=Danger.DELETES_ALL
        ),
        Operation(
            verb="drain",
            group="worker",
            parameters=(_WORKER,),
            home="marks:plan_drain",
            danger=Danger.MOVES,
            wait="10m",
            waits_for="How long to wait until it holds nothing; the drain goes on.",
        ),
        Operation(
            verb="undrain",
            group="worker",
            parameters=(_WORKER,),
            home="marks:plan_undrain",
            danger=Danger.MOVES,
        ),
    )
}
"""Every change, by its verb."""
