"""How a server is set up: a TOML file, the environment and flags, each above the one before."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource

from hearsay import files
from hearsay_server import declared
from ldp import InvalidInput

PREFIX = "HEARSAY_"
"""Of the environment variables that name a key."""

_NOT_OURS = {
    "HEARSAY_CONFIG",
    "HEARSAY_REVISION",
    "HEARSAY_TOKEN",
    "HEARSAY_CA",
    "HEARSAY_CERTIFICATE",
    "HEARSAY_KEY",
    "HEARSAY_SERVER_NAME",
    "HEARSAY_TARGET",
    "HEARSAY_DISABLED",
    "HEARSAY_DEBUG",
    "HEARSAY_TESTING",
    "HEARSAY_QUOTES",
    "HEARSAY_FUZZ_REPORTS",
}
"""Variables that are read elsewhere: by commands, by the SDK, and by the project's tests."""

_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")

_PORT = re.compile(r"(?P<host>\S+:)?(?P<port>[0-9]{1,5})")
_MOST_PORT = 65535
_PASSWORD = re.compile(r"(?<=://)([^\s/@:]*):[^\s/]*@")

Secret = Annotated[str, Field(repr=False)]
"""The type of keys that hold a secret: neither their value nor a wrong one is ever shown."""

_NotNegative = Field(ge=0)
_Positive = Field(gt=0)
_Int32 = Field(gt=0, lt=1 << 31)
"""The range of gRPC's integer options."""


class Process(BaseModel):
    """What an operator may set of any process that serves; the defaults serve loopback."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    listen: str = "127.0.0.1:50051"
    """HOST:PORT; port 0 takes a free one."""
    http: str = ""
    """HOST:PORT of Connect, gRPC-Web, probes and metrics over HTTP; empty: none."""
    http_hosts: str = ""
    """Host names by which HTTP is called, with commas; localhost and addresses always are."""
    http_origins: str = ""
    """Origins whose pages may call over HTTP, with commas, such as https://app.example."""
    insecure: bool = False
    """Listen on an address that is not loopback, without TLS."""
    tls_certificate: Path | None = None
    """Certificate chain, PEM; read again when it changes."""
    tls_key: Path | None = None
    """Its private key, PEM."""
    tls_client_ca: Path | None = None
    """Take only clients with a certificate of this CA, PEM."""
    encryption_key: Path | None = None
    """File of the key, 64 hex digits, under which private keys and seeds are stored encrypted."""
    require_device_token: bool = False
    """Take batches only with a device's token."""
    max_message_bytes: Annotated[int, _Int32] = 4 << 20
    """Largest request."""
    http_max_json_bytes: Annotated[int, _Int32] = 256 << 10
    """Largest request in JSON."""
    max_open_calls: Annotated[int, _Int32] = 1024
    """Calls under way at once."""
    max_connections: Annotated[int, _Int32] = 10_000
    """Connections at once; above it new ones are closed."""
    max_streams_per_connection: Annotated[int, _Int32] = 100
    """Calls under way at once on one connection."""
    max_upload_seconds: Annotated[float, _Int32] = 30.0
    """End a call whose message takes longer to come."""
    max_connection_idle_seconds: Annotated[float, _Int32] = 300.0
    """Close a connection that was idle so long."""
    batches_per_second: Annotated[float, _NotNegative] = 0.0
    """Batches that one token may send; 0: no limit."""
    metrics: str = ""
    """PORT (of loopback) or HOST:PORT of Prometheus metrics; empty: none."""
    traces: bool = False
    """Export OpenTelemetry traces of calls, as the variables OTEL_* say."""
    log_format: Literal["text", "json"] = "text"
    """Form of the log: text or json."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Log events of this level and above: debug, info, warning or error."""

    @property
    def hosts(self) -> frozenset[str]:
        """The host names in `http_hosts`."""
        return _names(self.http_hosts)

    @property
    def origins(self) -> frozenset[str]:
        """The origins in `http_origins`."""
        return _names(self.http_origins)

    @field_validator("*", mode="before")
    @classmethod
    def _as_meant(cls, value: object, info: ValidationInfo) -> object:
        """Refuse values that pydantic would convert: 1 is not true. An empty path is none."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if kind == Path | None and value == "":
            return None
        if kind in (Path, Path | None) and (value == "" or not isinstance(value, str | Path)):
            raise ValueError("must be a path")
        numeric = kind in (bool, int, float) and not isinstance(value, str)
        if numeric and isinstance(value, bool) != (kind is bool):
            raise ValueError("must be true or false" if kind is bool else "must be a number")
        return value

    @field_validator("listen", "http", "metrics")
    @classmethod
    def _is_address(cls, value: str, info: ValidationInfo) -> str:
        """Refuse a port that is none: gRPC takes 65536 and more for another one."""
        if value == cls.model_fields[str(info.field_name)].default or value.startswith("unix:"):
            return value
        found = _PORT.fullmatch(value)
        alone = info.field_name == "metrics"
        if not found or int(found["port"]) > _MOST_PORT or not (found["host"] or alone):
            form = "PORT or HOST:PORT" if alone else "HOST:PORT"
            raise ValueError(f"must be {form}, with a port from 0 to {_MOST_PORT}")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidInput("tls_certificate and tls_key go together: set both or neither")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise InvalidInput("tls_client_ca needs tls_certificate and tls_key")
        for name in self.hosts:
            if not _HOST.fullmatch(name):
                raise InvalidInput(
                    f"http_hosts must be names such as hearsay.example, in small letters and "
                    f"without a port, with commas between them, got {name!r}"
                )
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidInput(
                    f"http_origins must be origins such as https://app.example, in small letters "
                    f"and without a path, with commas between them, got {origin!r}"
                )
        if self.batches_per_second and not self.require_device_token:
            raise InvalidInput(
                "batches_per_second is a token's, and all who have none would share one: set "
                "require_device_token as well"
            )
        return self


class Config(Process):
    """Everything that an operator may set of the aggregation server."""

    data: Path = Path("hearsay-data")
    """The folder that holds everything; made if missing."""
    database: Secret = ""
    """postgresql://USER:PASSWORD@HOST/NAME to keep it in, instead of the folder."""
    keep_batches_days: Annotated[int, _NotNegative] = 0
    """Drop the randomised rows after so many days; their sums stay. 0: keep them."""
    pages: bool = True
    """Show pages over HTTP, too: they need hearsay-ldp[web], and are left out without it."""
    attestation: Literal["none", "test", "tdx", "sgx", "nitro"] = "none"
    """Make evidence of the code that runs, by this platform; "test" proves nothing."""
    share_port: bool = False
    """Share the port with other servers of this machine."""
    helper: str = ""
    """HOST:PORT or URL of the helper, for surveys with two servers."""
    helper_token: Secret = ""
    """A token of the role leader, made there."""
    helper_ca: Path | None = None
    """Trust the helper's certificate by this CA, PEM, in the place of the system's."""
    helper_insecure: bool = False
    """Reach a helper that is not on loopback without TLS."""
    helper_seconds: Annotated[float, _Positive] = 30.0
    """How often to hand shares over to the helper, and to look whether they can be summed."""
    max_batch_rows: Annotated[int, _Int32] = 100_000
    """Rows that one batch may hold."""
    rows_per_token_and_period: Annotated[int, _NotNegative] = 0
    """Rows of a survey's period that one device token may send; 0: no limit."""
    analysis_seconds: Annotated[int, _Int32] = 60
    """Processor time that one question of an analyst may take."""
    analysis_memory_mib: Annotated[int, Field(ge=256, lt=1 << 31)] = 2048
    """Memory that the process of one question of an analyst may take, in MiB."""
    probe_seconds: Annotated[float, _Positive] = 5.0
    """How often to test that the database can be written."""

    @property
    def where(self) -> Path | str:
        """Where everything is kept: the folder, or the URL of a database."""
        return self.database or self.data

    @model_validator(mode="after")
    def _caps_fit(self) -> Self:
        if self.rows_per_token_and_period and not self.require_device_token:
            raise InvalidInput(
                "rows_per_token_and_period caps nothing while batches are taken without a "
                "token: set require_device_token as well"
            )
        return self


class ElsewhereConfig(Process):
    """What an operator may set of a process beside the collector, be it a shuffler or a helper."""

    data: Path = Path("hearsay-elsewhere")
    """The folder that holds everything; made if missing."""
    collector: str = ""
    """HOST:PORT or URL of the server that collects: plans are fetched from there."""
    collector_token: Secret = ""
    """A token made there, of the role shuffler; of a helper, where devices need one, of theirs."""
    collector_ca: Path | None = None
    """Trust the collector's certificate by this CA, PEM, in the place of the system's."""
    collector_insecure: bool = False
    """Reach a collector that is not on loopback without TLS."""
    revisions: str = ""
    """Take these alone, with commas: SURVEY=REVISION, in hex. Empty: each survey's first plan."""

    @property
    def pinned(self) -> dict[str, bytes]:
        """The revisions in `revisions`, by survey."""
        parts = [part.partition("=") for part in _names(self.revisions)]
        return {survey.strip(): bytes.fromhex(hexed) for survey, _, hexed in parts}

    @model_validator(mode="after")
    def _collector_is_there(self) -> Self:
        if not self.collector:
            raise InvalidInput("collector must name the server that collects")
        try:
            lengths = {len(revision) for revision in self.pinned.values()}
        except ValueError:
            lengths = {0}
        if lengths - {32}:
            raise InvalidInput(
                "revisions must be SURVEY=REVISION with 64 hex digits each, with commas between "
                f"them, got {self.revisions!r}"
            )
        return self


class ShufflerConfig(ElsewhereConfig):
    """Everything that an operator may set of a shuffler."""

    data: Path = Path("hearsay-shuffler")
    """The folder that holds tokens and records until they are forwarded; made if missing."""
    listen: str = "127.0.0.1:50052"
    """HOST:PORT; port 0 takes a free one."""
    check_seconds: Annotated[float, _Positive] = 30.0
    """How often to look whether the records of a period can be forwarded."""
    ohttp: bool = False
    """Take requests by way of a relay, too, over HTTP; needs hearsay-ldp[ohttp]."""

    @model_validator(mode="after")
    def _gateway_has_a_door(self) -> Self:
        if self.ohttp and not self.http:
            raise InvalidInput("ohttp needs http: a relay's requests come over HTTP")
        return self


class HelperConfig(ElsewhereConfig):
    """Everything that an operator may set of a helper."""

    data: Path = Path("hearsay-helper")
    """The folder that holds the key, tokens and shares until they are summed; made if missing."""
    listen: str = "127.0.0.1:50053"
    """HOST:PORT; port 0 takes a free one."""


def _names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


@dataclass(frozen=True)
class Key:
    """One key of a process for people: the words of a manual, the default as in TOML."""

    name: str
    variable: str
    kind: str
    default: str
    meaning: str


def explained(kind: type[Process] = Config) -> list[Key]:
    """Return every key of a process: its own, then those of all processes."""
    return [
        Key(name, PREFIX + name.upper(), _kind(key), as_toml(key.default), key.description or "")
        for name, key in sorted(
            kind.model_fields.items(), key=lambda item: item[0] in Process.model_fields
        )
    ]


def as_toml(value: object) -> str:
    """Return the value of a key as it stands in the TOML file."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps("" if value is None else str(value), ensure_ascii=False)


def _kind(key: FieldInfo) -> str:
    """Return the type of a key in words, with its range."""
    if get_origin(key.annotation) is Literal:
        return " or ".join(get_args(key.annotation))
    bounds = [
        f"{sign} {getattr(bound, name)}"
        for bound in key.metadata
        for name, sign in _SIGNS.items()
        if hasattr(bound, name)
    ]
    return " ".join([_KINDS[key.annotation], " and ".join(bounds)]).strip()


_KINDS: dict[object, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    Path | None: "path, or empty",
}
_SIGNS = {"ge": ">=", "gt": ">", "lt": "<"}


_Kind = TypeVar("_Kind", bound=Process)


def load(file: Path | None = None, flags: Mapping[str, object] | None = None) -> Config:
    """Return how the aggregation server is set up, as `read` does."""
    return read(Config, file, flags)


def read(
    kind: type[_Kind], file: Path | None = None, flags: Mapping[str, object] | None = None
) -> _Kind:
    """Return the defaults, overridden by `file`, then by the environment, then by `flags`.

    A variable is HEARSAY_ and the key in capitals; a flag that is None was not given. Raises
    `InvalidInput` for a file that cannot be read, for a key or a HEARSAY_ variable that is not
    known, and for a value of the wrong type or out of range.
    """

    class Sources(BaseSettings, kind):  # type: ignore[valid-type,misc]
        """Where the values are looked for; it is never made."""

        model_config = {"env_prefix": PREFIX}

    unknown = f"there is no such key; there are {', '.join(kind.model_fields)}"
    written = {} if file is None else declared.load(files.read(file), str(file))
    known = _NOT_OURS | {PREFIX + name.upper() for name in kind.model_fields}
    for variable in sorted({*os.environ} - known):  # which the source would ignore
        if variable.startswith(PREFIX):
            raise InvalidInput(f"{variable}: {unknown}")
    given = {name: (f"{file}: {name}", value) for name, value in written.items()}
    for name, text in EnvSettingsSource(Sources)().items():
        given[name] = (PREFIX + name.upper(), text)
    given |= {name: (name, value) for name, value in (flags or {}).items() if value is not None}
    try:
        return kind.model_validate({name: value for name, (_, value) in given.items()})
    except ValidationError as error:
        faults = [_said(kind, fault, given, unknown) for fault in error.errors()]
        raise InvalidInput("; ".join(faults)) from None


def encryption_key(file: Path | None) -> Path | None:
    """Return the `encryption_key` that the environment or the file of any process sets.

    Raises `InvalidInput` for a file that cannot be read, and where the key is no path.
    """
    named = os.environ.get(f"{PREFIX}ENCRYPTION_KEY")
    if named is None and file is not None:
        named = declared.load(files.read(file), str(file)).get("encryption_key")
        if not isinstance(named, str | None):
            raise InvalidInput(f"{file}: encryption_key must be a path, got {named!r}")
    return Path(named) if named else None


def is_secret(kind: type[Process], name: str) -> bool:
    """Tell whether a key holds a secret."""
    return not kind.model_fields[name].repr


def has_secrets(kind: type[Process], file: Path) -> bool:
    """Tell whether a file, which was read before, sets a token or a database's password."""
    written = declared.load(files.read(file), str(file))
    tokens = [name for name, value in written.items() if value and is_secret(kind, name)]
    if "database" not in tokens or len(tokens) > 1:
        return bool(tokens)
    url = written["database"]
    return bool(_PASSWORD.search(url)) or "password=" in url


def shown(setup: Process) -> dict[str, object]:
    """Return the values of all keys for people: *** in the place of each secret and of a password
    in a URL."""
    found = {}
    for name, value in setup:
        if isinstance(value, str):
            value = _PASSWORD.sub(r"\1:***@", value)
        found[name] = "***" if value and is_secret(type(setup), name) else value
    return found


def _said(
    kind: type[Process],
    fault: ErrorDetails,
    given: Mapping[str, tuple[str, Any]],
    unknown: str,
) -> str:
    """Name a value's key and source, the expected value, and the given one unless it is secret."""
    expected = fault["msg"].replace("Input should be", "must be").removeprefix("Value error, ")
    if not fault["loc"]:  # of several keys, which the error names
        return expected
    where, value = given[str(fault["loc"][0])]
    if fault["type"] == "extra_forbidden":
        return f"{where}: {unknown}"
    if is_secret(kind, str(fault["loc"][0])):
        return f"{where} {expected}"
    return f"{where} {expected}, got {value!r}"
