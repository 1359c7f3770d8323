"""`hearsay serve`."""

import asyncio
import contextlib
import inspect
import logging
import sys
from asyncio import new_event_loop
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import typer
from pydantic.fields import FieldInfo

from hearsay_server import config, private
from hearsay_server.commands.local import ConfigFile
from hearsay_server.printing import say
from hearsay_server.serving import logs
from hearsay_server.serving import serve as serving
from hearsay_server.serving.inside import MakeSite
from ldp.errors import MissingExtra, needs

with contextlib.suppress(ImportError):  # it is made for CPython on Unix
    from uvloop import new_event_loop

_log = logging.getLogger("hearsay.server")


def with_an_option_for_every_key(
    kind: type[config.Process],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that takes `config_file` and flags an option for each key of `kind`."""
    return partial(_with_options, kind)


def _with_options(kind: type[config.Process], command: Callable[..., None]) -> Callable[..., None]:
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_kind(key) | None, typer.Option(help=_help(key))],
        )
        for name, key in kind.model_fields.items()
    ]
    own = list(inspect.signature(command).parameters.values())[:1]
    signature = inspect.Signature([*own, *options])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return command


def _kind(key: FieldInfo) -> Any:
    # Of a choice we say ourselves, in one line, what it must be.
    return str if get_origin(key.annotation) is Literal else key.annotation


def _help(key: FieldInfo) -> str:
    default = "" if key.default in (None, "", False) else f" (default {key.default})"
    return f"{key.description}{default}"


@with_an_option_for_every_key(config.Config)
def serve(config_file: ConfigFile = None, **flags: object) -> None:
    """Run the aggregation server until SIGTERM or Ctrl-C.

    Each option is also a key of the TOML file and, in capitals after HEARSAY_, a variable.
    """
    setup = config.load(config_file, flags)
    logs.configure(setup.log_format, setup.log_level)
    warn_of_file(type(setup), config_file)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serving.serve(setup, announce, site=_site(setup)))


def warn_of_file(kind: type[config.Process], config_file: Path | None) -> None:
    """Warn of a configuration with secrets that every user of the machine can read."""
    if config_file is not None and config.has_secrets(kind, config_file):
        private.warn_of_secrets(_log, [config_file])


def announce(address: str) -> None:
    """Tell whoever started a process that it answers."""
    say(f"listening on {address}")
    sys.stdout.flush()


def _site(setup: config.Config) -> MakeSite | None:
    """Return what makes the pages, None where there are to be none.

    Raises `MissingExtra` where they were asked for and cannot be shown.
    """
    if not (setup.http and setup.pages):
        return None
    try:
        with needs("pages = true", "web"):
            from hearsay_server.pages import make_site
    except MissingExtra as error:
        if "pages" in setup.model_fields_set:
            raise
        _log.info("no pages: %s", error)
        return None
    return make_site
