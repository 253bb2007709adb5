"""How a process gets at AWS: picklable settings, resolved anew wherever they arrive.

Spark carries these settings to the driver's and the executors' Python processes. A session, a client or temporary
credentials are made there and never travel, so that each process refreshes its own.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.aws import KinesisClient, make_client
from kinesis_sdk.common.errors import AwsConfigError, ConfigError

if TYPE_CHECKING:
    import boto3

POOL = 32
"""Connections kept per client; probes and task threads stay below it."""


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """Where Kinesis is, and as whom to call it.

    Attributes:
        region_name: AWS region; else botocore's resolution in the process that needs it.
        endpoint_url: Endpoint; else botocore's resolution, ``AWS_ENDPOINT_URL`` included.
        profile_name: Profile of the shared configuration files.
        role_arn: Role to assume; its credentials are renewed before they expire.
        role_session_name: Session name of the role.
        external_id: External id that the role asks for.
        access_key_id: Static credentials. Discouraged: they are pickled to every task.
        secret_access_key: Their secret; never shown.
        session_token: Their token; never shown.

    Raises:
        ConfigError: Half of a pair of static credentials, or fields of a role without a role; it names the option
            of Spark.
    """

    region_name: str | None = None
    endpoint_url: str | None = None
    profile_name: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    external_id: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise ConfigError("accessKeyId", self.access_key_id, "to be given together with secretAccessKey")
        if self.session_token and not self.access_key_id:
            raise ConfigError("sessionToken", "…", "to be given together with accessKeyId")
        for option, given in (("roleSessionName", self.role_session_name), ("externalId", self.external_id)):
            if given and not self.role_arn:
                raise ConfigError(option, given, "to be given together with roleArn")

    def session(self) -> boto3.Session:
        """A new session in this process.

        Raises:
            AwsConfigError: The profile does not exist.
        """
        import boto3
        from botocore.exceptions import BotoCoreError

        try:
            session = boto3.Session(
                profile_name=self.profile_name,
                region_name=self.region_name,
                aws_access_key_id=self.access_key_id,
                aws_secret_access_key=self.secret_access_key,
                aws_session_token=self.session_token,
            )
            return _assume(session, self, self.role_arn) if self.role_arn else session
        except BotoCoreError as error:
            raise AwsConfigError(f"cannot make a session: {error}", code=type(error).__name__) from error

    def client(self) -> KinesisClient:
        """A new Kinesis client in this process.

        Raises:
            AwsConfigError: No region, unknown profile, bad endpoint.
        """
        client: KinesisClient = make_client(
            "kinesis",
            session=self.session(),
            region_name=self.region_name,
            endpoint_url=self.endpoint_url,
            max_pool_connections=POOL,
            # A page is up to 10 MB: the read timeout is for the first byte of it on a busy network.
            read_timeout=20.0,
        )
        return client


def _assume(base: boto3.Session, connection: ConnectionSettings, role_arn: str) -> boto3.Session:
    """A session with a role's credentials, fetched on first use and renewed before they expire."""
    import boto3
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.session import get_session

    extra: dict[str, Any] = {"RoleSessionName": connection.role_session_name or "kinesis-sdk-spark"}
    if connection.external_id:
        extra["ExternalId"] = connection.external_id
    core = base._session
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=core.create_client,
        source_credentials=core.get_credentials(),
        role_arn=role_arn,
        extra_args=extra,
    )
    assumed: Any = get_session()
    assumed._credentials = DeferredRefreshableCredentials(
        refresh_using=fetcher.fetch_credentials, method="assume-role"
    )
    return boto3.Session(botocore_session=assumed, region_name=base.region_name)


_lock = threading.Lock()
_clients: dict[tuple[int, ConnectionSettings], KinesisClient] = {}


def shared_client(connection: ConnectionSettings) -> KinesisClient:
    """The client of this process for these settings.

    Spark reuses worker processes for many tasks; connections and refreshed credentials outlive each of them.

    Raises:
        AwsConfigError: No region, unknown profile, bad endpoint.
    """
    slot = (os.getpid(), connection)
    with _lock:
        client = _clients.get(slot)
        if client is None:
            client = _clients[slot] = connection.client()
        return client
