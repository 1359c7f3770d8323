"""`hearsay audit`: whether mechanisms keep the epsilon that they claim."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import hearsay.plans.plan
from hearsay_server import tabular
from hearsay_server.commands import plotting, plotting_plans
from hearsay_server.commands.connect import AsJson
from hearsay_server.commands.mechanism import Categories, Epsilon, MechanismName, maker
from hearsay_server.commands.plotting import Plot
from hearsay_server.commands.plotting_plans import Bound
from hearsay_server.printing import Console, headed, say_json
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput, Mechanism


def audit(
    mechanism: MechanismName = "",
    k: Categories = None,
    epsilon: Epsilon = None,
    survey: Annotated[
        Path | None, typer.Option(help="Audit every mechanism of this survey (TOML) instead.")
    ] = None,
    draws: Annotated[
        int, typer.Option(help="Simulated reports for each input; a tenth of it one by one.")
    ] = 200_000,
    confidence: Annotated[
        float | None,
        typer.Option(help="Of all verdicts by simulation; 0.99, and 0.95 of canaries."),
    ] = None,
    canaries: Annotated[
        int | None,
        typer.Option(help="So many devices at each level answer a server of their own instead."),
    ] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Check that mechanisms keep the epsilon they claim; exit with 1 where one does not.

    The channel is enumerated exactly where it is small enough. Both samplers are measured: of
    single reports, which clients run, and of reports in bulk. The epsilon is at least the
    bound shown, at the stated confidence. A mechanism too large to enumerate still had its
    integers checked, exactly, when it was built.

    With canaries the whole collection is measured: each is a client that answers one of two
    records, by a coin, to a server started for them with the survey. The coins are guessed from
    the exported rows; many right guesses refute the epsilon.

    \b
      hearsay audit krr --k 8 --epsilon 1
      hearsay audit piecewise --epsilon 2
      hearsay audit --survey survey.toml
      hearsay audit --survey survey.toml --canaries 1000
    """
    if plot is not None:
        plotting.check(plot)
        if canaries is not None:
            raise InvalidInput("--plot draws mechanisms: leave it out with --canaries")
    if canaries is not None:
        if survey is None or mechanism or k is not None or epsilon is not None:
            raise InvalidInput("--canaries answer a survey: give --survey, and no mechanism")
        from hearsay_server.commands import canaries as command

        if command.audit(survey, canaries, confidence or 0.95, as_json):
            raise typer.Exit(1)
        return
    from ldp import Coins
    from ldp.assurance.audit import audit as examine
    from ldp.assurance.audit import in_bulk, one_by_one

    rows = []
    audited = _audited(mechanism, k, epsilon, survey)
    samplers = {
        "single": (one_by_one, max(draws // 10, min(draws, 100))),
        "bulk": (in_bulk, draws),
    }
    # So that all hold together (Bonferroni).
    each = 1 - (1 - (confidence or 0.99)) / (len(samplers) * len(audited))
    for place, built in audited:
        for sampler, (draw, n) in samplers.items():
            result = examine(built, Coins(), draws=n, confidence=each, draw=draw)
            rows.append((place, built.name, sampler, result))
    if plot is not None:
        plotting_plans.bounds(
            [
                Bound(f"{place}: {name}, {sampler}", told.claimed, told.lower_bound, told.violated)
                for place, name, sampler, told in rows
            ],
            plot,
        )
    violated = len({place for place, _, _, result in rows if result.violated})
    if as_json:
        documents = [
            {"place": place, "mechanism": name, "sampler": sampler, "violated": result.violated}
            | {key: value for key, value in asdict(result).items() if key != "mechanism"}
            for place, name, sampler, result in rows
        ]
        say_json(documents)
    else:
        table = Table("", "mechanism", "sampler")
        for heading in ("claims", "channel", "at least", "verdict"):
            table.add_column(heading, justify="right")
        for place, name, sampler, result in rows:
            exact = "too large" if result.exact is None else f"{result.exact:.6g}"
            verdict = headed("VIOLATED", style="bold red") if result.violated else "kept"
            numbers = (f"{result.claimed:.6g}", exact, f"{result.lower_bound:.4g}", verdict)
            table.add_row(place, name, sampler, *numbers)
        tabular.show(table)
        Console().print(f"{violated} of {len(audited)} mechanisms violate what they claim")
    if violated:
        raise typer.Exit(1)


def _audited(
    name: str, k: int | None, epsilon: float | None, survey: Path | None
) -> list[tuple[str, Mechanism]]:
    """Return the mechanisms to audit, each with a label of its place in the survey."""
    if survey is None:
        if not name or epsilon is None:
            raise InvalidInput("give a mechanism and --epsilon (and --k), or --survey")
        return [(f"k = {k}" if k else "numbers", maker(name, k)(epsilon))]
    if name or k is not None or epsilon is not None:
        raise InvalidInput("--survey has its own mechanisms: give nothing else with it")
    resolved = hearsay.plans.plan.parse(surveys.resolve(surveys.from_file(survey)))
    return [
        (", ".join(filter(None, (level.name, attribute, chosen))), mechanism)
        for level in resolved.levels.values()
        for attribute, by_map in level.by_map.items()
        for chosen, mechanism in by_map.items()
    ]
