"""Translates the credentials providers of KCL properties, named as in the AWS SDK for Java, into providers of botocore.

The value is a chain: ``NAME|ARGUMENT|ARGUMENT, NAME2``. The first provider that finds credentials is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import AwsConfigError, ConfigError

if TYPE_CHECKING:
    import boto3

_ROLE_SESSION_NAME = "kinesis-sdk"

_BOTOCORE = {
    "EnvironmentVariableCredentialsProvider": "env",
    "WebIdentityTokenFileCredentialsProvider": "assume-role-with-web-identity",
    "ContainerCredentialsProvider": "container-role",
    "InstanceProfileCredentialsProvider": "iam-role",
}
"""Botocore's providers by their names in version 2 of the SDK for Java."""

_VERSION_1 = {
    "DefaultAWSCredentialsProviderChain": "DefaultCredentialsProvider",
    "STSAssumeRoleSessionCredentialsProvider": "StsAssumeRoleCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper": "ContainerCredentialsProvider",
    "WebIdentityTokenCredentialsProvider": "WebIdentityTokenFileCredentialsProvider",
    "KclSTSAssumeRoleSessionCredentialsProvider": "StsAssumeRoleCredentialsProvider",
    "KclStsAssumeRoleCredentialsProvider": "StsAssumeRoleCredentialsProvider",
}
"""Other names: the names in version 1 of the SDK for Java, which most files still have, and the KCL's own classes."""

_DEFAULT = "DefaultCredentialsProvider"
_PROFILE = "ProfileCredentialsProvider"
_ROLE = "StsAssumeRoleCredentialsProvider"

KNOWN = (_DEFAULT, _PROFILE, _ROLE, *_BOTOCORE)
"""Names that have a counterpart."""

_TEACHING = {
    "AnonymousCredentialsProvider": "Kinesis and DynamoDB accept signed requests only",
    "SystemPropertyCredentialsProvider": "Python has no system properties; set environment variables, and name "
    "EnvironmentVariableCredentialsProvider",
    "StaticCredentialsProvider": "a file has no place for keys; put them into a profile, and name ProfileCredentialsProvider|PROFILE",
    "ProcessCredentialsProvider": "name ProfileCredentialsProvider|PROFILE with a profile that has credential_process",
}


@dataclass(frozen=True)
class Provider:
    """One provider of a chain.

    Attributes:
        name: Name in version 2 of the SDK for Java, without its package.
        profile: Profile, for ``ProfileCredentialsProvider``; None is botocore's default profile.
        role_arn: Role, for ``StsAssumeRoleCredentialsProvider``, which also uses the following fields.
    """

    name: str
    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str = _ROLE_SESSION_NAME
    external_id: str | None = None
    sts_region: str | None = None
    sts_endpoint: str | None = None


def parse_credentials(key: str, value: str) -> tuple[Provider, ...]:
    """Return the chain of providers of a property.

    A provider without a counterpart in botocore, or a wrong argument, raises `ConfigError`, which names the remedy.
    """
    chain = tuple(_provider(key, part.strip()) for part in value.split(",") if part.strip())
    if not chain:
        raise ConfigError(key, value, "the name of a credentials provider")
    return chain


def _provider(key: str, text: str) -> Provider:
    full, *arguments = [part.strip() for part in text.split("|")]
    name = full.rpartition(".")[2]
    name = _VERSION_1.get(name, name)
    if name in _TEACHING:
        raise ConfigError(key, full, f"a provider that exists in Python: {_TEACHING[name]}")
    if name not in KNOWN:
        raise ConfigError(
            key,
            full,
            f"one of {', '.join(KNOWN)}: a Java class cannot be used from Python, so pass a session of your own to Worker",
        )
    if name == _PROFILE and len(arguments) <= 1:
        return Provider(name, profile=arguments[0] if arguments else None)
    if name == _ROLE:
        return _role(key, text, arguments)
    if arguments:
        raise ConfigError(key, text, f"{name} without arguments")
    return Provider(name)


def _role(key: str, text: str, arguments: list[str]) -> Provider:
    if len(arguments) < 2 or not all(arguments[:2]):
        raise ConfigError(key, text, f"{_ROLE}|ROLE_ARN|ROLE_SESSION_NAME")
    fields: dict[str, str] = {}
    for nested in arguments[2:]:
        name, _, value = nested.partition("=")
        if name == "externalId" and value:
            fields["external_id"] = value
        elif name == "endpointRegion" and value:
            fields["sts_region"] = value
        elif name == "endpoint" and value.count("^") == 1 and all(value.split("^")):
            url, fields["sts_region"] = value.split("^")
            fields["sts_endpoint"] = url if "://" in url else f"https://{url}"
        else:
            raise ConfigError(key, nested, "externalId=ID, endpointRegion=REGION or endpoint=URL^REGION")
    return Provider(_ROLE, role_arn=arguments[0], role_session_name=arguments[1], **fields)


def make_session(chain: tuple[Provider, ...], region_name: str | None = None) -> boto3.Session:
    """Return a session with the credentials of a chain, which botocore refreshes before they expire.

    An empty chain is botocore's default chain. A profile that does not exist raises `AwsConfigError`.
    """
    import boto3
    from botocore.credentials import CredentialResolver
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        if not chain or chain == (Provider(_DEFAULT),):
            return boto3.Session(region_name=region_name)
        core: Any = Session()
        providers = [_counterpart(provider) for provider in chain]
        core.register_component("credential_provider", CredentialResolver(providers=providers))
        return boto3.Session(botocore_session=core, region_name=region_name)
    except BotoCoreError as error:
        raise AwsConfigError(f"cannot create a session: {error}", code=type(error).__name__) from error


def _counterpart(provider: Provider) -> Any:
    """Return an object with the interface of botocore's credential providers."""
    from botocore.credentials import create_credential_resolver
    from botocore.session import Session

    session: Any = Session(profile=provider.profile) if provider.profile else Session()
    if provider.name == _ROLE:
        return _AssumeRole(provider, session)
    resolver: Any = create_credential_resolver(session)
    if provider.name == _PROFILE:
        # Keep only the providers that read files, not those before and after them in the default chain.
        session.full_config  # noqa: B018 - raises if the files cannot be read
        _ = session.get_scoped_config() if provider.profile else None
        others = {*_BOTOCORE.values(), "ec2-credentials-file", "boto-config"}
        kept = [
            each
            for each in resolver.providers
            if each.METHOD not in others - {"assume-role-with-web-identity"}
        ]
        return _Several(kept)
    if provider.name == _DEFAULT:
        return _Several(resolver.providers)
    return resolver.get_provider(_BOTOCORE[provider.name])


class _Several:
    """A provider that tries several providers in order."""

    METHOD = "kinesis-sdk-chain"
    CANONICAL_NAME = None

    def __init__(self, providers: list[Any]) -> None:
        self._providers = providers

    def load(self) -> Any:
        """Return the first credentials found, or None."""
        return next((found for each in self._providers if (found := each.load()) is not None), None)


class _AssumeRole:
    """A provider of a role's credentials, which are fetched on first use and refreshed before they expire."""

    METHOD = "assume-role"
    CANONICAL_NAME = None

    def __init__(self, provider: Provider, session: Any) -> None:
        self._provider = provider
        self._session = session

    def load(self) -> Any:
        """Return the credentials, without a call before their first use."""
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

        provider = self._provider
        extra = {"RoleSessionName": provider.role_session_name}
        if provider.external_id:
            extra["ExternalId"] = provider.external_id

        def create_client(service: str, **arguments: Any) -> Any:
            if provider.sts_region:
                arguments["region_name"] = provider.sts_region
            if provider.sts_endpoint:
                arguments["endpoint_url"] = provider.sts_endpoint
            return self._session.create_client(service, **arguments)

        fetcher = AssumeRoleCredentialFetcher(
            client_creator=create_client,
            source_credentials=self._session.get_credentials(),
            role_arn=str(provider.role_arn),
            extra_args=extra,
        )
        return DeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method=self.METHOD)
