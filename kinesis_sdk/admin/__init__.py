"""Administration of streams and applications: the API under the command line, the terminal view and the web console.

This API reads the lease table and the stream, not the workers' processes, so it works for every KCL application, of this SDK and of the
Java KCL 1.x, 2.x and 3.x.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.admin.applications import Application as Application
    from kinesis_sdk.admin.applications import Applications as Applications
    from kinesis_sdk.admin.applications import StreamFacts as StreamFacts
    from kinesis_sdk.admin.applications import find_lease_key as find_lease_key
    from kinesis_sdk.admin.changes.description import ChangeDescription as ChangeDescription
    from kinesis_sdk.admin.changes.description import Planned as Planned
    from kinesis_sdk.admin.changes.description import Result as Result
    from kinesis_sdk.admin.changes.description import Status as Status
    from kinesis_sdk.admin.changes.description import Write as Write
    from kinesis_sdk.admin.changes.desk import Desk as Desk
    from kinesis_sdk.admin.changes.marks import WorkerInfo as WorkerInfo
    from kinesis_sdk.admin.changes.marks import list_workers as list_workers
    from kinesis_sdk.admin.changes.operations import OPERATIONS as OPERATIONS
    from kinesis_sdk.admin.changes.operations import Danger as Danger
    from kinesis_sdk.admin.changes.operations import Operation as Operation
    from kinesis_sdk.admin.changes.operations import Parameter as Parameter
    from kinesis_sdk.admin.changes.plans import export_leases as export_leases
    from kinesis_sdk.admin.changes.positions import parse_start as parse_start
    from kinesis_sdk.admin.changes.transfer import Export as Export
    from kinesis_sdk.admin.changes.transfer import parse_export as parse_export
    from kinesis_sdk.admin.command import Command as Command
    from kinesis_sdk.admin.connection import Connection as Connection
    from kinesis_sdk.admin.doctor.diagnose import diagnose as diagnose
    from kinesis_sdk.admin.doctor.model import Finding as Finding
    from kinesis_sdk.admin.doctor.model import Level as Level
    from kinesis_sdk.admin.doctor.model import Report as Report
    from kinesis_sdk.admin.exporter import FleetMetrics as FleetMetrics
    from kinesis_sdk.admin.fleet.balance import Balance as Balance
    from kinesis_sdk.admin.fleet.balance import balance_of as balance_of
    from kinesis_sdk.admin.fleet.explain import explain as explain
    from kinesis_sdk.admin.fleet.model import FleetView as FleetView
    from kinesis_sdk.admin.fleet.model import LagReading as LagReading
    from kinesis_sdk.admin.fleet.model import LagSource as LagSource
    from kinesis_sdk.admin.fleet.model import LeaseState as LeaseState
    from kinesis_sdk.admin.fleet.model import LeaseView as LeaseView
    from kinesis_sdk.admin.fleet.model import Move as Move
    from kinesis_sdk.admin.fleet.model import OwnerKind as OwnerKind
    from kinesis_sdk.admin.fleet.model import OwnerView as OwnerView
    from kinesis_sdk.admin.fleet.model import Problem as Problem
    from kinesis_sdk.admin.fleet.model import Severity as Severity
    from kinesis_sdk.admin.fleet.model import Totals as Totals
    from kinesis_sdk.admin.fleet.observe import FleetObserver as FleetObserver
    from kinesis_sdk.admin.fleet.overview import ApplicationSummary as ApplicationSummary
    from kinesis_sdk.admin.fleet.overview import read_fleets as read_fleets
    from kinesis_sdk.admin.fleet.overview import summarize as summarize
    from kinesis_sdk.admin.fleet.overview import worst_first as worst_first
    from kinesis_sdk.admin.fleet.poller import FleetPoller as FleetPoller
    from kinesis_sdk.admin.fleet.poller import Subscription as Subscription
    from kinesis_sdk.admin.fleet.problems import ProblemSettings as ProblemSettings
    from kinesis_sdk.admin.lease_tables.interface import ApplicationInfo as ApplicationInfo
    from kinesis_sdk.admin.lineage import Lineage as Lineage
    from kinesis_sdk.admin.lineage import LineageShard as LineageShard
    from kinesis_sdk.admin.lineage import Origin as Origin
    from kinesis_sdk.admin.lineage import make_lineage as make_lineage
    from kinesis_sdk.admin.load import ShardLoad as ShardLoad
    from kinesis_sdk.admin.load import sample_load as sample_load
    from kinesis_sdk.admin.merge import ShardRecord as ShardRecord
    from kinesis_sdk.admin.payload import DecodedPayload as DecodedPayload
    from kinesis_sdk.admin.payload import PayloadKind as PayloadKind
    from kinesis_sdk.admin.payload import decode_payload as decode_payload
    from kinesis_sdk.admin.reading import ReadProgress as ReadProgress
    from kinesis_sdk.admin.reading import RecordFilter as RecordFilter
    from kinesis_sdk.admin.reading import read_stream as read_stream
    from kinesis_sdk.admin.recording.model import Course as Course
    from kinesis_sdk.admin.recording.model import ShardHistory as ShardHistory
    from kinesis_sdk.admin.recording.recorder import Recording as Recording
    from kinesis_sdk.admin.records import RecordPage as RecordPage
    from kinesis_sdk.admin.records import read_page as read_page
    from kinesis_sdk.admin.report import incident_report as incident_report
    from kinesis_sdk.admin.resharding import Resharding as Resharding
    from kinesis_sdk.admin.resharding import ScaleResult as ScaleResult
    from kinesis_sdk.admin.scaling import ScalePlan as ScalePlan
    from kinesis_sdk.admin.streams import StreamConsumer as StreamConsumer
    from kinesis_sdk.admin.streams import StreamDescription as StreamDescription
    from kinesis_sdk.admin.streams import Streams as Streams
    from kinesis_sdk.admin.streams import StreamSummary as StreamSummary
    from kinesis_sdk.admin.transfer.copy import CopyResult as CopyResult
    from kinesis_sdk.admin.transfer.copy import copy_stream as copy_stream
    from kinesis_sdk.admin.transfer.files import RecordFile as RecordFile
    from kinesis_sdk.admin.transfer.put import put_files as put_files
    from kinesis_sdk.admin.transfer.run import TransferProgress as TransferProgress
    from kinesis_sdk.admin.transfer.run import TransferResult as TransferResult
    from kinesis_sdk.admin.transfer.state import StateFile as StateFile
    from kinesis_sdk.common.once import FirstCopy as FirstCopy
    from kinesis_sdk.common.once import first_copy as first_copy
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.admin.applications": (
                "Application",
                "Applications",
                "StreamFacts",
                "find_lease_key",
            ),
            "kinesis_sdk.admin.changes.desk": ("Desk",),
            "kinesis_sdk.admin.changes.marks": ("WorkerInfo", "list_workers"),
            "kinesis_sdk.admin.changes.operations": ("OPERATIONS", "Danger", "Operation", "Parameter"),
            "kinesis_sdk.admin.changes.plans": ("export_leases",),
            "kinesis_sdk.admin.changes.positions": ("parse_start",),
            "kinesis_sdk.admin.changes.description": (
                "Planned",
                "Result",
                "Status",
                "ChangeDescription",
                "Write",
            ),
            "kinesis_sdk.admin.changes.transfer": ("Export", "parse_export"),
            "kinesis_sdk.admin.command": ("Command",),
            "kinesis_sdk.admin.connection": ("Connection",),
            "kinesis_sdk.admin.doctor.diagnose": ("diagnose",),
            "kinesis_sdk.admin.exporter": ("FleetMetrics",),
            "kinesis_sdk.admin.doctor.model": ("Finding", "Level", "Report"),
            "kinesis_sdk.admin.fleet.balance": ("Balance", "balance_of"),
            "kinesis_sdk.admin.fleet.explain": ("explain",),
            "kinesis_sdk.admin.fleet.model": (
                "FleetView",
                "LagReading",
                "LagSource",
                "LeaseState",
                "LeaseView",
                "Move",
                "OwnerKind",
                "OwnerView",
                "Problem",
                "Severity",
                "Totals",
            ),
            "kinesis_sdk.admin.fleet.observe": ("FleetObserver",),
            "kinesis_sdk.admin.fleet.overview": (
                "ApplicationSummary",
                "read_fleets",
                "summarize",
                "worst_first",
            ),
            "kinesis_sdk.admin.fleet.poller": ("FleetPoller", "Subscription"),
            "kinesis_sdk.admin.fleet.problems": ("ProblemSettings",),
            "kinesis_sdk.admin.lease_tables.interface": ("ApplicationInfo",),
            "kinesis_sdk.admin.lineage": ("Lineage", "LineageShard", "Origin", "make_lineage"),
            "kinesis_sdk.admin.load": ("ShardLoad", "sample_load"),
            "kinesis_sdk.admin.merge": ("ShardRecord",),
            "kinesis_sdk.admin.reading": ("ReadProgress", "RecordFilter", "read_stream"),
            "kinesis_sdk.admin.transfer.copy": ("CopyResult", "copy_stream"),
            "kinesis_sdk.admin.transfer.files": ("RecordFile",),
            "kinesis_sdk.admin.transfer.put": ("put_files",),
            "kinesis_sdk.admin.transfer.run": ("TransferProgress", "TransferResult"),
            "kinesis_sdk.admin.transfer.state": ("StateFile",),
            "kinesis_sdk.admin.payload": ("DecodedPayload", "PayloadKind", "decode_payload"),
            "kinesis_sdk.admin.recording.model": ("Course", "ShardHistory"),
            "kinesis_sdk.admin.recording.recorder": ("Recording",),
            "kinesis_sdk.admin.report": ("incident_report",),
            "kinesis_sdk.admin.records": ("RecordPage", "read_page"),
            "kinesis_sdk.common.once": ("FirstCopy", "first_copy"),
            "kinesis_sdk.admin.resharding": ("Resharding", "ScaleResult"),
            "kinesis_sdk.admin.scaling": ("ScalePlan",),
            "kinesis_sdk.admin.streams": (
                "StreamConsumer",
                "StreamDescription",
                "StreamSummary",
                "Streams",
            ),
        },
    )
