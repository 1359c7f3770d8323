"""How a server is set up: a TOML file, the environment and flags, each above the one before."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

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
}
"""Variables that are read elsewhere: where the file is, and how a command reaches a server."""


@dataclass(frozen=True)
class Config:
    """Everything that an operator may set; the defaults serve one machine's loopback."""

    data: Annotated[Path, "The folder that holds everything; made if missing."] = Path(
        "hearsay-data"
    )
    database: Annotated[
        str, "postgresql://USER:PASSWORD@HOST/NAME to keep it in, instead of the folder."
    ] = ""
    keep_batches_days: Annotated[
        int, "Drop the randomised rows after so many days; their sums stay. 0: keep them."
    ] = 0
    listen: Annotated[str, "HOST:PORT; port 0 takes a free one."] = "127.0.0.1:50051"
    workers: Annotated[int, "Processes that share the port; metrics are on one port each."] = 1
    share_port: Annotated[bool, "Share the port with other servers of this machine."] = False
    insecure: Annotated[bool, "Listen on an address that is not loopback, without TLS."] = False

    tls_certificate: Annotated[
        Path | None, "Certificate chain, PEM; read again when it changes."
    ] = None
    tls_key: Annotated[Path | None, "Its private key, PEM."] = None
    tls_client_ca: Annotated[
        Path | None, "Take only clients with a certificate of this CA, PEM."
    ] = None

    require_device_token: Annotated[bool, "Take batches only with a device's token."] = False

    max_message_bytes: Annotated[int, "Largest request."] = 4 << 20
    max_batch_rows: Annotated[int, "Rows that one batch may hold."] = 100_000
    max_open_calls: Annotated[int, "Calls under way at once."] = 1024
    max_connections: Annotated[int, "Connections at once; above it new ones are closed."] = 10_000
    max_streams_per_connection: Annotated[int, "Calls under way at once on one connection."] = 1024
    max_upload_seconds: Annotated[float, "End a call whose message takes longer to come."] = 30.0
    max_connection_idle_seconds: Annotated[float, "Close a connection that was idle so long."] = (
        300.0
    )
    batches_per_second: Annotated[float, "Batches that one token may send; 0: no limit."] = 0.0
    rows_per_token_and_period: Annotated[
        int, "Rows of a survey's period that one device token may send; 0: no limit."
    ] = 0

    metrics: Annotated[
        str, "PORT (of loopback) or HOST:PORT of Prometheus metrics; empty: none."
    ] = ""
    log_format: Annotated[str, "text or json."] = "text"
    log_level: Annotated[str, "debug, info, warning or error."] = "info"
    probe_seconds: Annotated[float, "How often to test that the database can be written."] = 5.0

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidInput("tls_certificate and tls_key go together: set both or neither")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise InvalidInput("tls_client_ca needs tls_certificate and tls_key")
        if self.rows_per_token_and_period and not self.require_device_token:
            raise InvalidInput(
                "rows_per_token_and_period caps nothing while batches are taken without a "
                "token: set require_device_token as well"
            )
        for name in KEYS:
            if name.startswith("max_"):
                self._check(name, 0 < getattr(self, name) < 1 << 31, "from 1 to 2^31 - 1")
        for name in ("batches_per_second", "rows_per_token_and_period", "keep_batches_days"):
            value = getattr(self, name)
            self._check(name, 0 <= value < math.inf, "finite and >= 0")
        if self.batches_per_second and not self.require_device_token:
            raise InvalidInput(
                "batches_per_second is a token's, and all who have none would share one: set "
                "require_device_token as well"
            )
        self._check("workers", 1 <= self.workers <= 64, "from 1 to 64")
        self._check("probe_seconds", 0 < self.probe_seconds < math.inf, "finite and > 0")
        self._check("log_format", self.log_format in ("text", "json"), "text or json")
        levels = ("debug", "info", "warning", "error")
        self._check("log_level", self.log_level in levels, "one of " + ", ".join(levels))

    @property
    def where(self) -> Path | str:
        """Where everything is kept: the folder, or the URL of a database."""
        return self.database or self.data

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise InvalidInput(f"{name} must be {expected}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Key:
    """What a key of `Config` is: its type, whether it may be none, its default, what it means."""

    kind: Any
    optional: bool
    default: object
    help: str


def _keys() -> dict[str, Key]:
    found = {}
    for name, hint in get_type_hints(Config, include_extras=True).items():
        kind, help_ = get_args(hint)
        optional = kind == Path | None
        found[name] = Key(Path if optional else kind, optional, getattr(Config, name), help_)
    return found


KEYS = _keys()


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """Return the defaults, overridden by `file`, then by `environ`, then by `flags`.

    A variable is HEARSAY_ and the key in capitals; a flag that is None was not given. Raises
    `InvalidInput` for a file that cannot be read, for a key or a HEARSAY_ variable that is not
    known, and for a value of the wrong type or out of range.
    """
    given: dict[str, object] = {}
    if file is not None:
        given |= {name: _value(f"{file}: {name}", name, v) for name, v in _read(file).items()}
    for variable, text in (environ or {}).items():
        if variable.startswith(PREFIX) and variable not in _NOT_OURS:
            name = variable.removeprefix(PREFIX).lower()
            given[name] = _spelled(variable, name, text)
    given |= {name: value for name, value in (flags or {}).items() if value is not None}
    return Config(**given)  # type: ignore[arg-type]  # each was checked against its key


def _read(file: Path) -> dict[str, object]:
    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{file}: {error}") from None


def _kind(where: str, name: str) -> Any:
    if name not in KEYS:
        raise InvalidInput(f"{where}: there is no such key; there are {', '.join(KEYS)}")
    return KEYS[name].kind


def _value(where: str, name: str, value: object) -> object:
    """Check a value of TOML; an empty path stands for none."""
    kind = _kind(where, name)
    if kind is float and type(value) is int:
        return float(value)
    if kind is Path and isinstance(value, str):
        return _path(where, name, value)
    if type(value) is not kind:
        raise InvalidInput(f"{where} must be {_NAMES[kind]}, got {value!r}")
    return value


def _spelled(where: str, name: str, text: str) -> object:
    """Read a value that the environment spells."""
    kind = _kind(where, name)
    if kind is Path:
        return _path(where, name, text)
    try:
        return _TRUTH[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise InvalidInput(f"{where} must be {_NAMES[kind]}, got {text!r}") from None


def _path(where: str, name: str, text: str) -> Path | None:
    if not text and not KEYS[name].optional:
        raise InvalidInput(f"{where} must be a path, got ''")
    return Path(text) if text else None


_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "text", Path: "a path"}
