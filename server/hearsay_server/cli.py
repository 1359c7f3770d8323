"""The `hearsay` command: the list of its commands, each loaded when it is run."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from hearsay_server.commands import connect

COMMANDS = {
    "serve": ("serve:serve", "Run the aggregation server until SIGTERM or Ctrl-C."),
    "shuffler": (
        "shuffler:app",
        "Run a shuffler of sealed records, and look at what it holds.",
    ),
    "helper": (
        "helper:app",
        "Run the helper of surveys with two servers, and look at its key and what it holds.",
    ),
    "config": (
        "configuration:show",
        "Print the values that a server would take from the file and the environment, as TOML.",
    ),
    "health": (
        "health:health",
        "Ask a server whether it can take reports; exit with 1 where it cannot.",
    ),
    "survey": ("surveys:app", "Register, inspect, close and delete surveys."),
    "training": (
        "trainings:app",
        "Declare, plan, try, inspect and close trainings over devices.",
    ),
    "token": (
        "tokens:app",
        "Make, list, rotate and revoke tokens, whether or not the server runs.",
    ),
    "audit-log": (
        "audit_log:audit_log",
        "Print who registered, closed, deleted, exported, backed up or changed tokens, and when.",
    ),
    "codegen": (
        "codegen:codegen",
        "Write a module with an app's agreement and a typed function that records answers.",
    ),
    "device": ("device:app", "Make a device's ledger, and look into one."),
    "ask": ("ask:app", "Ask one question of a survey, and print, save or draw the answer."),
    "query": (
        "query:query",
        "Ask for attributes' debiased frequencies, or means, with their errors.",
    ),
    "export": (
        "export:export",
        "Write the randomised rows as Parquet, each period in files of its own.",
    ),
    "train": (
        "train:train",
        "Train a model on the randomised records, by their channels; save it with its account.",
    ),
    "plan": (
        "plan:plan",
        "Work out the number of reports, the epsilon or the error of a survey before it is run.",
    ),
    "audit": (
        "audit:audit",
        "Check that mechanisms keep the epsilon they claim; exit with 1 where one does not.",
    ),
    "shuffle": (
        "shuffle:shuffle",
        "Bound the epsilon of a cohort's reports for observers who see them only in random order.",
    ),
    "account": (
        "account:account",
        "Compare every accountant's epsilon for a training run with clipped gradients and noise.",
    ),
    "verify": (
        "upkeep:verify",
        "Recount the stored batches and compare with every tally; exit with 1 where one differs.",
    ),
    "backup": (
        "upkeep:backup",
        "Copy everything, as it is at one moment, into one file; servers may go on meanwhile.",
    ),
    "restore": ("upkeep:restore", "Copy a backup into an empty folder or database."),
    "retention": (
        "upkeep:retention",
        "Close ended periods, drop old rows and purge unneeded ids; a server does so every hour.",
    ),
    "demo": (
        "demo:demo",
        "Play a survey through: devices, server, analyst, and how close it came to the truth.",
    ),
}
"""By command: its module and function, and the first sentence of its help."""


_WHOLE = 1000
"""Characters of a command's first sentence: all."""

ROLES = {
    "Everyone": ("demo", "plan", "audit", "shuffle"),
    "App developers": ("codegen", "device"),
    "Operators": (
        "serve",
        "shuffler",
        "helper",
        "config",
        "health",
        "survey",
        "token",
        "audit-log",
        "verify",
        "backup",
        "restore",
        "retention",
    ),
    "Analysts": ("ask", "query", "export"),
    "Model builders": ("train", "training", "account"),
}
"""Whose commands they are, in the order of the help."""


class _Group(TyperGroup):
    """A group whose help has each command's first sentence whole."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        self._list(ctx, formatter, "Commands", self.list_commands(ctx))

    def _list(self, ctx: Any, formatter: Any, heading: str, names: Iterable[str]) -> None:
        found = [(name, each) for name in names if (each := self.get_command(ctx, name))]
        with formatter.section(heading):
            formatter.write_dl([(name, each.get_short_help_str(_WHOLE)) for name, each in found])


class _Loading(_Group):
    """A group that imports a command when it is run; its help alone needs no import."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for role, names in ROLES.items():
            self._list(ctx, formatter, role, names)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            self.add_command(load(args[0]), args[0])
        return super().resolve_command(ctx, args)


class _Command(TyperCommand):
    """A command whose help has its options under the headings that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                usual = "Options" if each.param_type_name == "option" else "Arguments"
                heading = getattr(each, "rich_help_panel", None) or usual
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def load(name: str) -> Any:
    """Import one of `COMMANDS`."""
    where, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"hearsay_server.commands.{where}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command()(found)
        found = alone
    for each in found.registered_commands:
        each.cls = _Command
    found.rich_markup_mode = None  # the tables of rich cut long names of options
    found.info.cls = _Group
    return get_command(found)


app = typer.Typer(
    cls=_Loading,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(connect.options)
for _name, (_, _help) in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)
