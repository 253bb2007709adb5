"""Outputs of commands with ``--json``, as types with a version: `kinesis-sdk schema` shows them as JSON Schemas.

Within a version, fields are only added. To remove a field, or to change its meaning, raise the version in
`output.VERSIONS`. A document that is an object names its schema in its first field, ``schema``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.marks import WorkerInfo
from kinesis_sdk.admin.changes.plan import Action
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.doctor.model import Finding, Level
from kinesis_sdk.admin.fleet.balance import Balance
from kinesis_sdk.admin.fleet.model import FleetView, LeaseView, Problem, Totals
from kinesis_sdk.admin.fleet.overview import ApplicationSummary
from kinesis_sdk.admin.lineage import LineageShard
from kinesis_sdk.admin.load import ShardLoad
from kinesis_sdk.admin.payload import PayloadKind
from kinesis_sdk.admin.resharding import ScaleResult
from kinesis_sdk.admin.streams import StreamConsumer, StreamDescription, StreamSummary
from kinesis_sdk.admin.transfer.copy import CopyResult
from kinesis_sdk.admin.transfer.run import TransferResult
from kinesis_sdk.cli.json_schema import DIALECT, schema_of
from kinesis_sdk.cli.output import schema_name
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.dead_letters.letter import State
from kinesis_sdk.dead_letters.store import Group
from kinesis_sdk.verify.report import Report as VerificationReport
from kinesis_sdk.verify.run import Plan as VerificationPlan
from kinesis_sdk.verify.scratch import Removal


class ApplicationRow(TypedDict):
    """An application of an account."""

    application: str
    status: str
    created: datetime | None
    streams: list[str]
    totals: Totals
    owners: Mapping[str, int]
    entities: Mapping[str, int]
    error: str


class AllApplications(TypedDict):
    """Every application of an account, worst first."""

    applications: list[ApplicationSummary]


class Explanation(TypedDict):
    """Explanation why a shard is moving or not."""

    lease: LeaseView | None
    explanation: list[str]
    problems: list[Problem]
    watched: float


class PlannedRow(TypedDict):
    """A row of the lease table that a plan changes."""

    lease_key: str
    shard_id: str
    recipe: Recipe
    owner: str | None
    owner_kind: str | None
    checkpoint: ExtendedSequenceNumber | None
    position: ExtendedSequenceNumber | None
    worker: str | None
    write: list[str]
    effect: str
    guarantee: str


class ShardReason(TypedDict):
    """A shard, and the reason why it stays unchanged."""

    shard_id: str | None
    reason: str


class Plan(TypedDict):
    """Plan of a change."""

    action: Action
    application: str
    command: Command
    changes: list[PlannedRow]
    unchanged: list[ShardReason]
    refusals: list[ShardReason]
    notes: list[str]


class RowOutcome(TypedDict):
    """Outcome of the change of a row."""

    lease_key: str
    shard_id: str
    status: Status
    recipe: Recipe | None
    message: str
    checkpoint_before: str | None
    position: str | None
    noticed_by: str | None
    noticed_after: float | None
    final_owner: str | None


class Changed(TypedDict):
    """A change of leases: its plan, and the outcome of each row; no outcomes with ``--dry-run``."""

    plan: Plan
    outcomes: list[RowOutcome]


class Marked(TypedDict):
    """A mark in the lease table."""

    writes: list[str]
    done: bool


class Drained(TypedDict):
    """A worker that gives up its leases."""

    writes: list[str]
    drained: bool


class _RequestMade(TypedDict, total=False):
    outcome: str


class Requested(_RequestMade):
    """A request to the owner of a shard whose handler fails."""

    writes: list[str]
    request: str
    done: bool


class Exported(TypedDict):
    """Leases that were saved."""

    file: str
    leases: int
    left_out: Mapping[str, str]


class RowDeleted(TypedDict):
    """A row of the lease table that is, or was, deleted."""

    row: str
    effects: list[str]
    deleted: bool


class _Backup(TypedDict, total=False):
    backup: str | None


class ApplicationDeleted(_Backup):
    """The tables of an application that are, or were, deleted."""

    tables: list[str]
    deleted: bool


class LineageData(TypedDict):
    """Shards with their places in the picture of a stream."""

    shards: list[LineageShard]
    generations: int
    hole: HashKeyRange | None
    forks: Any
    joins: Any


class StreamPicture(TypedDict):
    """A stream with its shards and their load."""

    stream: StreamDescription
    lineage: LineageData
    load: list[ShardLoad] | None


class StreamDeleted(TypedDict):
    """A stream that was deleted."""

    deleted: str
    arn: str


class Split(TypedDict):
    """The shards that a split made."""

    children: list[str]


class Merged(TypedDict):
    """The shard that a merge made."""

    child: str


class ScalePlanned(TypedDict):
    """Plan of a scaling."""

    target: int
    splits: int
    merges: int
    update_shard_count: Any
    peak: int
    reason: str


class Retention(TypedDict):
    """The retention of a stream."""

    retention_hours: int
    before: int


class Examination(TypedDict):
    """All findings of one examination."""

    level: Level
    stream: str
    application: str
    findings: list[Finding]
    calls: Mapping[str, int]


class PlannedVerification(TypedDict):
    """Steps of a verification, their price, and the permissions that they need."""

    plan: VerificationPlan
    policy: Mapping[str, Any]


class RecordLine(TypedDict):
    """A user record."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    aggregated: bool
    arrived_at: str | None
    partition_key: str
    explicit_hash_key: Any
    headers: Mapping[str, str]
    size: int
    encoding: PayloadKind
    data: Any
    truncated: bool


class LetterGroups(TypedDict):
    """Dead letters by error, application, stream and shard."""

    location: str
    letters: int
    size: int
    groups: list[Group]
    ungrouped: int
    unreadable: int


class _LetterFacts(TypedDict):
    id: str
    state: State
    application: str
    stream: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    partition_key: str
    explicit_hash_key: str | None
    error: str
    attempt: int
    first_failed: int | None
    set_aside: int
    size: int


class LetterLine(_LetterFacts):
    """A dead letter, with the names of its headers."""

    headers: list[str]


class Letters(TypedDict):
    """Dead letters, each by itself."""

    location: str
    letters: list[LetterLine]
    unreadable: int


class ShownPayload(TypedDict):
    """Payload of a record."""

    encoding: PayloadKind
    data: Any
    truncated: bool


class ShownLetter(_LetterFacts):
    """A dead letter; with ``--payload``, its headers include their values."""

    headers: list[str] | Mapping[str, str]
    payload: ShownPayload | None


class LettersChanged(TypedDict):
    """A replay or a drop of dead letters; with ``--dry-run``, only its plan."""

    location: str
    target: str | None
    letters: int
    groups: list[Group]
    done: int | None
    failed: int | None


class ExporterAddress(TypedDict):
    """Addresses of the exporter."""

    url: str
    keda_url: str
    health_url: str
    applications: list[str]


class ConsoleAddress(TypedDict):
    """Address of the console, with the token if one is needed."""

    url: str
    applications: list[str]
    allow_changes: bool


class Event(TypedDict):
    """Event; further fields depend on it."""

    event: str


@dataclass(frozen=True, kw_only=True)
class Output:
    """Output of a command with ``--json``.

    Attributes:
        is_open: Whether further fields depend on the content.
        are_lines: Whether the output is one line for each event, printed as it happens.
    """

    kind: Any
    is_open: bool = False
    are_lines: bool = False


_FLEET = Output(kind=FleetView)
_CHANGED = Output(kind=Changed)
_MARKED = Output(kind=Marked)
_REQUESTED = Output(kind=Requested)
_PICTURE = Output(kind=StreamPicture)
_EVENTS = Output(kind=Event, is_open=True, are_lines=True)

OUTPUTS: Mapping[str, Output] = {
    "apps": Output(kind=list[ApplicationRow]),
    "balance": Output(kind=Balance),
    "copy": Output(kind=CopyResult),
    "demo": Output(kind=Mapping[str, Any]),
    "dlq drop": Output(kind=LettersChanged),
    "dlq list": Output(kind=LetterGroups | Letters),
    "dlq replay": Output(kind=LettersChanged),
    "dlq show": Output(kind=ShownLetter),
    "doctor": Output(kind=Examination),
    "exporter": Output(kind=ExporterAddress, are_lines=True),
    "lag": Output(kind=FleetView | AllApplications),
    "leases delete-app": Output(kind=ApplicationDeleted),
    "leases delete-row": Output(kind=RowDeleted),
    "leases explain": Output(kind=Explanation),
    "leases export": Output(kind=Exported),
    "leases import": _CHANGED,
    "leases list": _FLEET,
    "leases move": _CHANGED,
    "leases pin": _MARKED,
    "leases release": _CHANGED,
    "leases retry": _REQUESTED,
    "leases rewind": _CHANGED,
    "leases show": _FLEET,
    "leases skip-record": _REQUESTED,
    "leases skip-to": _CHANGED,
    "leases unpin": _MARKED,
    "multilang": _EVENTS,
    "put": Output(kind=TransferResult),
    "run": _EVENTS,
    "stream consumers": Output(kind=list[StreamConsumer] | StreamConsumer),
    "stream create": Output(kind=StreamDescription),
    "stream delete": Output(kind=StreamDeleted),
    "stream describe": _PICTURE,
    "stream list": Output(kind=list[StreamSummary]),
    "stream merge": Output(kind=Merged),
    "stream retention": Output(kind=Retention),
    "stream scale": Output(kind=ScaleResult | ScalePlanned),
    "stream split": Output(kind=Split),
    "stream watch": Output(kind=StreamPicture, are_lines=True),
    "tail": Output(kind=RecordLine, are_lines=True),
    "top": Output(kind=FleetView, are_lines=True),
    "ui": Output(kind=ConsoleAddress, are_lines=True),
    "verify": Output(kind=VerificationReport | PlannedVerification | Removal),
    "worker drain": Output(kind=Drained),
    "worker list": Output(kind=list[WorkerInfo]),
    "worker undrain": _MARKED,
}
"""The output of each command that has ``--json``, by the command's words."""


def output_schema(command: str, *, is_open: bool = True) -> dict[str, Any]:
    """Return the JSON Schema of a command's output. If ``is_open``, objects may have further fields; tests use the closed form."""
    output = OUTPUTS[command]
    name = schema_name(command)
    names_itself = {} if output.are_lines else {"properties": {"schema": {"const": name}}}
    return {
        "$schema": DIALECT,
        "$id": f"urn:kinesis-sdk:{name.replace('/', ':')}",
        "title": f"kinesis-sdk {command} --json" + (", each line" if output.are_lines else ""),
        **(names_itself if is_open else {}),
        **schema_of(output.kind, is_open=is_open or output.is_open),
    }
