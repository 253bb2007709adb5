"""Settings that the supervisor passes to a worker process, as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.run.config_file import initial_position_from, read_config
from kinesis_sdk.cli.run.policy_table import PolicyPlace
from kinesis_sdk.consumer import ConsumerConfig


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of one worker process.

    Attributes:
        handler: ``module:attribute``.
        is_factory: Whether ``handler`` names a function that returns `WorkerParts`, instead of a handler.
        streams: Names or ARNs; more than one selects the multi-stream form of the lease table; none with a table.
        worker_id: Unique id of the worker.
        dynamodb_table: Table whose stream is read, or the ARN of a stream; None for Kinesis streams.
        config_file: TOML file with settings of the consumer, or None.
        lease_store: URL of the lease store; None uses the file's value.
        sink: URL of the sink; None for the factory's sink, or for no sink.
        initial_position: Text of a position, for shards without a lease; None uses the file's value.
        until: ISO 8601 moment at which the worker ends; None for no end.
        region: AWS region; None for the usual region.
        profile: Profile of ``~/.aws``; None for the usual credentials.
        endpoint_url: Endpoint of all services; None for AWS.
        log_format: ``text`` or ``json``.
        stop_timeout: Seconds that a clean stop may take after the supervisor has ended.
        reports_health: Whether to report the health every second.
        reports_metrics: Whether to report metrics for Prometheus on request.
        status_fd: File descriptor for reports to the supervisor.
        reads_tiers: Whether to read the streams of the file's retry tiers instead of ``streams``.
    """

    handler: str
    streams: tuple[str, ...]
    application_name: str
    worker_id: str
    dynamodb_table: str | None = None
    config_file: str | None = None
    lease_store: str | None = field(default=None, repr=False)
    sink: str | None = field(default=None, repr=False)
    initial_position: str | None = None
    until: str | None = None
    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    log_level: str = "INFO"
    log_format: Literal["text", "json"] = "text"
    stop_timeout: float = 25.0
    reports_health: bool = False
    reports_metrics: bool = False
    is_factory: bool = False
    status_fd: int = -1
    reads_tiers: bool = False

    def to_json(self) -> str:
        """Return the settings as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> RunSettings:
        """Read the text that `to_json` wrote."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**{**fields, "streams": tuple(fields["streams"])})

    def place(self) -> PolicyPlace:
        """Return the facts that the policy of the file needs. Tiers of the policy may have to be closed."""
        return PolicyPlace(
            application=self.application_name,
            stream=self.streams[0] if len(self.streams) == 1 else None,
            connection=self.connection,
        )

    @property
    def worker_application(self) -> str:
        """The application of the worker. The streams of tiers, which are read along with the stream, have an application of their own."""
        return f"{self.application_name}-retries" if self.reads_tiers else self.application_name

    @property
    def connection(self) -> Connection:
        """The account, region and endpoint of all calls."""
        return Connection(region=self.region, profile=self.profile, endpoint_url=self.endpoint_url)

    def consumer_config(self, *, loads: bool = False, place: PolicyPlace | None = None) -> ConsumerConfig:
        """Return the settings of the consumer: the file's, overridden by the options.

        ``loads`` imports the user's code that the file names; see `read_file`.

        Raises:
            ConfigError: If the file cannot be read, or a value is not valid.
        """
        config = (
            ConsumerConfig()
            if self.config_file is None
            else read_config(self.config_file, loads=loads, place=place)
        )
        if self.lease_store is not None:
            config = config.with_fields(lease_store=self.lease_store)
        position = self.initial_position
        if position is None:
            return config
        return config.with_fields(initial_position=initial_position_from(position))
