"""The changes to a live application: their names, parameters and plans. Command line, terminal view and console only present them.

```python
desk = Desk(application=Application(Connection(region="eu-west-1"), "billing"))
planned = OPERATIONS["rewind"].plan(desk, to=datetime(2026, 11, 21, 9, tzinfo=timezone.utc))
for write in planned.description.writes:
    print(write.row, write.lines)
planned.apply()
```
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import AfterSequence, AtSequence
from kinesis_sdk.common.position_text import parse_position
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

if TYPE_CHECKING:
    from kinesis_sdk.admin.changes.description import Planned
    from kinesis_sdk.admin.changes.desk import Desk
    from kinesis_sdk.admin.changes.positions import Start


class Danger(str, Enum):
    """The worst that a change can do by mistake."""

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
        option: Its name on the command line and in requests; `name` by default.
        help: Its meaning.
        placeholder: Name of its value in texts.
        expected: Description of an accepted value, for the error if the value is missing.
        parse: Returns the value that a text stands for, given the text and the present in epoch seconds; None if the
            text is the value.
        many: Whether it takes several values.
        required: Whether it must be given.
        is_flag: Whether it is a flag, which has no value.
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
        """Return the value of a parameter in a form or a request.

        Raises:
            ConfigError: If the value is missing or not accepted.
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


@dataclass(frozen=True)
class Operation:
    """A change to a live application.

    Attributes:
        verb: Its name.
        home: Module of this package and function that plans it, given a desk and the parameters by name. It is imported when
            needed.
        danger: The worst that it can do by mistake.
        parameters: Its parameters.
        wait: Default time to watch the change, such as ``60s``; empty if the write completes the change.
        waits_for: Meaning of that time, for the help of the option.
        group: The group of commands that it belongs to: ``leases`` or ``worker``.
    """

    verb: str
    home: str
    danger: Danger
    parameters: tuple[Parameter, ...]
    wait: str = ""
    waits_for: str = (
        "How long to wait until the owners act on the change; the change goes on. 0s does not wait."
    )
    group: str = "leases"

    def plan(self, desk: Desk, **values: Any) -> Planned:
        """Plan the change. Nothing is written.

        Args:
            desk: The application.
            values: The parameters.

        Raises:
            ConfigError: If a value is not accepted, or the application or its stream is not known.
            ChangeRefusedError: If the change is refused as a whole; `ChangeDescription.refusals` lists the refused rows.
            AwsError: If a call failed; with another database, a `LeaseStoreError`.
        """
        module, _, name = self.home.partition(":")
        planned: Planned = getattr(import_module(f"{__package__}.{module}"), name)(desk, **values)
        return planned

    def plan_texts(self, desk: Desk, given: Mapping[str, object]) -> Planned:
        """Plan the change as `plan` does, with the values of a form or a request.

        Args:
            desk: The application.
            given: Texts, lists of texts and flags by the name of the option; other names are ignored.
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
    """Return the first record at a position of the form ``at:``."""
    position = parse_position(text, field="record", now=now, accepted=(AtSequence,))
    before = position.sub_sequence_number if isinstance(position, AfterSequence) else None
    assert isinstance(position, (AtSequence, AfterSequence))
    return ExtendedSequenceNumber(position.sequence_number, 0 if before is None else before + 1)


_MINUTE = "60s"
_SOME_SHARDS = Parameter(
    name="shards",
    option="shard",
    help="Only this shard, for example 3; may be given several times.",
    placeholder="SHARD",
    many=True,
    required=False,
)
_SHARDS = replace(_SOME_SHARDS, help="The shard; may be given several times.", required=True)
_SHARD = Parameter(name="shard", help="The shard.", placeholder="SHARD", expected="the key of a lease")
_WORKER = Parameter(name="worker", placeholder="WORKER", expected="the id of a worker", is_argument=True)
_TO_WORKER = replace(_WORKER, option="to", help="Id of the worker.", is_argument=False)
_SWAP_HELP = "Give one of the worker's leases to the present owner in return; for one shard."
_SWAP = Parameter(name="swap", help=_SWAP_HELP, required=False, is_flag=True)
_REWIND_TO = Parameter(
    name="to",
    help="A time (2026-11-21T09:00:00Z, or -15m: 15 minutes ago), TRIM_HORIZON, LATEST, or a record (at:<sequence number>).",
    placeholder="START",
    expected="a position",
    parse=_rewind_start,
)
_SKIP_TO = replace(
    _REWIND_TO,
    help="A time, LATEST, the first record to process (at:<sequence number>), or the last one to skip (after:<sequence number>).",
    parse=_skip_start,
)
_RECORD = Parameter(
    name="record",
    help="at:<sequence number>[/<index>] of the record [default: the one on which the handler fails].",
    placeholder="POSITION",
    parse=_record,
    required=False,
)
_EXPORT = Parameter(name="export", placeholder="FILE", is_argument=True)
_ROW_HELP = "Key of the row, or the number of its shard."
_ROW = Parameter(name="row", help=_ROW_HELP, placeholder="KEY", expected="the key of a row")
_DRAINED = "How long to wait until it holds nothing; the drain goes on."

OPERATIONS: Mapping[str, Operation] = {
    one.verb: one
    for one in (
        Operation(
            "rewind", "lease_change:change_by_rewind", Danger.REPEATS, (_REWIND_TO, _SOME_SHARDS), _MINUTE
        ),
        Operation("skip-to", "lease_change:change_by_skip", Danger.SKIPS, (_SKIP_TO, _SOME_SHARDS), _MINUTE),
        Operation("release", "lease_change:change_by_release", Danger.MOVES, (_SHARDS,), _MINUTE),
        Operation("move", "lease_change:change_by_move", Danger.MOVES, (_SHARDS, _TO_WORKER, _SWAP), _MINUTE),
        Operation("pin", "marks:plan_pin", Danger.MOVES, (_SHARD, _TO_WORKER)),
        Operation("unpin", "marks:plan_unpin", Danger.MOVES, (_SHARD,)),
        Operation("retry", "requests:plan_retry", Danger.NONE, (_SHARD,), _MINUTE),
        Operation("skip-record", "requests:plan_skip_record", Danger.SKIPS, (_SHARD, _RECORD), _MINUTE),
        Operation("import", "lease_change:change_by_import", Danger.SKIPS, (_EXPORT,), _MINUTE),
        Operation("delete-row", "deletions:plan_row_deletion", Danger.DELETES, (_ROW,)),
        Operation("delete-app", "deletions:plan_app_deletion", Danger.DELETES_ALL, ()),
        Operation("drain", "marks:plan_drain", Danger.MOVES, (_WORKER,), "10m", _DRAINED, group="worker"),
        Operation("undrain", "marks:plan_undrain", Danger.MOVES, (_WORKER,), group="worker"),
    )
}
"""Every change, by its verb."""
