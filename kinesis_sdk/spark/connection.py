"""Connection settings for AWS: picklable, and resolved in every process that receives them.

Spark sends these settings to the Python processes of the driver and the executors. Each process creates its own session, client
and temporary credentials from them, and refreshes those credentials itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from kinesis_sdk.common.errors import AwsConfigError, ConfigError

if TYPE_CHECKING:
    import boto3

    from kinesis_sdk.common.aws import KinesisClient

POOL = 32
"""Connections that each client keeps: more than the number of probe threads or task threads."""


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """Region, endpoint and credentials for calls to Kinesis.

    Attributes:
        region_name: AWS region; None resolves it as botocore does in each process.
        endpoint_url: Endpoint; None resolves it as botocore does, including ``AWS_ENDPOINT_URL``.
        profile_name: Profile in the shared configuration files; None uses the default.
        role_arn: Role to assume; its credentials are refreshed before they expire. None uses the credentials that the
            process finds.
        role_session_name: Session name of the role; None for ``kinesis-sdk-spark``.
        external_id: External id, if the role requires one.
        access_key_id: Access key id of static credentials. Discouraged, because Spark sends them with every task.
        secret_access_key: Secret of the static credentials; never shown.
        session_token: Session token of the static credentials; never shown.

    Raises:
        ConfigError: If only one half of the static credentials is set, or a field of a role without the role. The error
            names the Spark option.
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
            raise ConfigError("accessKeyId", self.access_key_id, "a value only together with secretAccessKey")
        if self.session_token and not self.access_key_id:
            raise ConfigError("sessionToken", "…", "a value only together with accessKeyId")
        for option, given in (("roleSessionName", self.role_session_name), ("externalId", self.external_id)):
            if given and not self.role_arn:
                raise ConfigError(option, given, "a value only together with roleArn")

    def session(self) -> boto3.Session:
        """Create a session in this process.

        Raises:
            AwsConfigError: If the profile does not exist.
        """
        import boto3

        return boto3.Session(botocore_session=self._core())

    def client(self) -> KinesisClient:
        """Create a Kinesis client in this process.

        Raises:
            AwsConfigError: If there is no region, the profile does not exist, or the endpoint is invalid.
        """
        # Imported here and below, because processes that only look at options make no calls.
        from kinesis_sdk.common.aws import make_client

        core = self._core()
        if core.get_config_variable("data_path") is None:  # no models of the user
            core.register_component("data_loader", _model_loader())
        client: KinesisClient = make_client(
            "kinesis",
            session=_Core(core),
            region_name=self.region_name,
            endpoint_url=self.endpoint_url,
            max_pool_connections=POOL,
            # A response is up to 10 MB long. On a busy network, its first byte may take a while.
            read_timeout=20.0,
        )
        return client

    def _core(self) -> Any:
        """Create a session of botocore, the only part of boto3 that a client needs."""
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        try:
            core = Session(profile=self.profile_name)
            core.get_scoped_config()  # raises if the profile does not exist
            if self.region_name:
                core.set_config_variable("region", self.region_name)
            if self.access_key_id and self.secret_access_key:
                core.set_credentials(self.access_key_id, self.secret_access_key, self.session_token)
            return _assume(core, self, self.role_arn) if self.role_arn else core
        except BotoCoreError as error:
            raise AwsConfigError(f"cannot create a session: {error}", code=type(error).__name__) from error


class _Core:
    """A session of botocore with the interface of boto3's session. Importing boto3 takes a tenth of the CPU time of creating a client."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def client(self, service: str, **settings: Any) -> Any:
        """Create a client."""
        return self._core.create_client(service, **settings)


@cache
def _model_loader() -> Any:
    """Return a loader that does not list all services to check that one exists, which takes a fifth of the CPU time of creating a client."""
    from botocore.loaders import Loader

    class ModelLoader(Loader):
        def list_available_services(self, type_name: str) -> Any:
            return _EveryName() if type_name in _MODELS else super().list_available_services(type_name)

    return ModelLoader()


_MODELS = ("service-2", "endpoint-rule-set-1")


class _EveryName:
    """A container of all names, even of services that do not exist."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())


def _assume(base: Any, connection: ConnectionSettings, role_arn: str) -> Any:
    """Return a session of botocore with the credentials of a role, which are fetched on first use and refreshed before they expire."""
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.session import Session

    extra: dict[str, Any] = {"RoleSessionName": connection.role_session_name or "kinesis-sdk-spark"}
    if connection.external_id:
        extra["ExternalId"] = connection.external_id
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=base.create_client,
        source_credentials=base.get_credentials(),
        role_arn=role_arn,
        extra_args=extra,
    )
    assumed: Any = Session()
    assumed._credentials = DeferredRefreshableCredentials(
        refresh_using=fetcher.fetch_credentials, method="assume-role"
    )
    region = base.get_config_variable("region")
    if region:
        assumed.set_config_variable("region", region)
    return assumed


_lock = threading.Lock()
_clients: dict[tuple[int, ConnectionSettings], KinesisClient] = {}


def shared_client(connection: ConnectionSettings) -> KinesisClient:
    """Return the client of this process for these settings, for reading.

    Spark reuses worker processes for many tasks, so connections and refreshed credentials outlive each task.

    Raises:
        AwsConfigError: If there is no region, the profile does not exist, or the endpoint is invalid.
    """
    slot = (os.getpid(), connection)
    with _lock:
        client = _clients.get(slot)
        if client is None:
            from kinesis_sdk.common.transport import Transport

            # The planner probes up to 1,000 shards per trigger, most of which have nothing new.
            client = _clients[slot] = cast("KinesisClient", Transport(connection.client()))
        return client
