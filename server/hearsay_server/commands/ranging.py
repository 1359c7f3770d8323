"""`hearsay survey range`: a pilot for the range of a number, and the range that it proposes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import hearsay.plans.plan
from hearsay import Analyst, files
from hearsay.plans.kinds import Binned
from hearsay.plans.plan import Plan
from hearsay_server.commands import connect, plotting
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Insecure, Target, Token
from hearsay_server.commands.writing import write_new
from hearsay_server.printing import Console, say, say_json
from hearsay_server.surveys import catalogue
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput, Waves
from ldp.estimating import ranges

_MISFIT = 3.0
"""Standard errors from which the reports contradict the fitted distribution: some percent of pilots
of numbers with one mode have as many."""

_REST = 10.0
"""Errors from which a bias that the reports allow is told to be large."""

_WIDE = 0.1
"""The part of the error, moved by numbers at the pilot's end, from which it was too narrow."""


def survey_range(
    context: typer.Context,
    attribute: Annotated[str, typer.Argument(help="The number's name in the pilot.")],
    smallest: Annotated[
        float, typer.Option(help="Numbers nearer to zero are as good as zero.")
    ] = 0.01,
    largest: Annotated[float, typer.Option(help="No number is expected to be larger.")] = 1e9,
    positive: Annotated[
        bool, typer.Option("--positive", help="There are no numbers below 0.")
    ] = False,
    per_decade: Annotated[int, typer.Option(help="Bins for each factor of ten.")] = 5,
    epsilon: Annotated[
        float, typer.Option(help="Of the pilot; with --pilot, of the number in what follows.")
    ] = 1.0,
    out: Annotated[Path | None, typer.Option(help="Where to write the pilot's survey.")] = None,
    pilot: Annotated[
        Path | None, typer.Option(help="Propose a range, from the answers to this pilot.")
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(help="What `hearsay query PILOT ATTRIBUTE --json` printed; not the server."),
    ] = None,
    n: Annotated[int | None, typer.Option(help="Reports that the survey is to have.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the pilot and the range: a .png, .svg or .pdf file.")
    ] = None,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Find the range of a number of which nobody knows how large it is.

    \b
    First write a pilot, which asks for the number in bins that grow, and collect
    its answers:
      hearsay survey range wage --largest 1e6 --positive --out pilot.toml
      hearsay survey create pilot.toml
    Then learn the range with the least error of the mean, as TOML to paste:
      hearsay survey range wage --pilot pilot.toml --n 20000 --epsilon 1
    """
    if pilot is None:
        if out is None or n is not None or answers is not None or plot is not None:
            raise InvalidInput(
                "give --out to write a pilot, or --pilot and --n to learn a range from its answers"
            )
        edges = ranges.growing_edges(
            smallest, largest, per_decade=per_decade, negative=not positive
        )
        text = _pilot(attribute, edges, epsilon)
        surveys.resolve(surveys.from_toml(text, str(out)))  # refused before anything is written
        write_new(out, text)
        say(
            f"{out} asks for {attribute} in {len(edges) - 1} bins, from {edges[0]:g} to "
            f"{edges[-1]:g}:\n  hearsay survey create {out}"
        )
        return
    if n is None or out is not None:
        raise InvalidInput(
            "--pilot needs --n, the number of reports that the survey is to have, and takes no "
            "--out"
        )
    if plot is not None:
        plotting.check(plot)
    plan = hearsay.plans.plan.parse(surveys.resolve(surveys.from_file(pilot)))
    edges, mechanism = _asked(plan, attribute, pilot)
    if answers is None:
        tls = connect.tls(context)
        with Analyst(target, tls=tls, token=token, insecure=insecure) as analyst:
            collected = analyst.estimate(plan.survey, attribute).to_dict()
    else:
        collected = _read(answers)
    estimate, reports = _estimate(collected, plan, pilot, attribute, len(edges) - 1)
    variance = catalogue.numeric("auto", epsilon).largest_report_variance
    spread = mechanism.covariance(np.full(mechanism.k, 1 / mechanism.k), reports)
    found = ranges.propose(edges, estimate, spread, pilot=reports, n=n, variance=variance)
    if plot is not None:
        shares = ranges.fitted(edges, estimate, spread).shares
        errors = np.sqrt(np.diag(spread))
        plotting.pilot(attribute, edges, np.array(estimate), errors, shares, found, plot)
    block = _block(attribute, found)
    if as_json:
        told = {"attribute": attribute, "pilot": reports, "n": n, "epsilon": epsilon}
        numbers = {name: getattr(found, name) for name in found.__dataclass_fields__}
        say_json(told | numbers | {"toml": block})
        return
    say(
        f"{attribute} from {found.low:.10g} to {found.high:.10g}, by {reports:,} reports of the "
        f"pilot\n"
        f"clamped: {found.clamped:.1%} of the people by the fitted distribution, between\n"
        f"  {found.clamped_low:.1%} and {found.clamped_high:.1%} by the reports alone (95%)\n"
        f"mean of {n:,} reports at epsilon {epsilon:g}, by the fitted distribution:\n"
        f"  clamping moves the mean by {found.bias:.3g} at most, noise has a standard error\n"
        f"  of {found.noise:.3g}, both together {found.error:.3g}\n"
        f"by the reports alone clamping may move the mean by up to {found.bias_high:.3g} (95%)"
    )
    if found.bias_high > _REST * found.error:
        say("  so that the proposal rests on the fitted distribution, of one mode a sign")
    say()
    say(block, nl=False)
    console = Console(stderr=True)
    if found.misfit > _MISFIT or not found.clamped_low <= found.clamped <= found.clamped_high:
        console.print(
            "warning: the reports contradict the fitted distribution, which has one mode for each "
            f"sign: a share below one edge of the pilot is {found.misfit:.1f} standard errors off. "
            "Do not rely on this range: look at `hearsay query PILOT ATTRIBUTE`, and choose one "
            "that holds all bins with people"
        )
    if found.beyond * max(-edges[0], edges[-1]) > _WIDE * found.error:
        console.print(
            f"warning: {found.beyond:.2%} of the numbers are in the pilot's outermost bins, and "
            "how large they are is not known: repeat it with a larger --largest"
        )


def _pilot(attribute: str, edges: Sequence[float], epsilon: float) -> str:
    """Return the survey that asks for a number in these bins."""
    listed = ", ".join(f"{edge:.10g}" for edge in edges)
    return (
        f"# A pilot for the range of {attribute}: it asks for the number in bins that grow.\n"
        "# An app records the number itself, and the device finds its bin.\n"
        f'name = "{attribute}_pilot"\n'
        f"\n[levels]\npilot = {float(epsilon)!r}\n"
        f'\n[[attributes]]\nname = "{attribute}"\n'
        f"[attributes.numeric]\nedges = [{listed}]\nclamp = true\n"
    )


def _block(attribute: str, found: ranges.Range) -> str:
    return (
        f'[[attributes]]\nname = "{attribute}"\n[attributes.numeric]\n'
        f"low = {found.low:.10g}\nhigh = {found.high:.10g}\nclamp = true\n"
    )


def _asked(plan: Plan, attribute: str, file: Path) -> tuple[tuple[float, ...], Waves]:
    """Return the bins of the pilot's number, and their mechanism."""
    question = plan.attributes.get(attribute)
    if question is None or not isinstance(question.domain, Binned) or attribute in plan.views:
        raise InvalidInput(f"{file} does not ask for {attribute!r} as a number in bins")
    if len(plan.levels) > 1 or plan.period:
        raise InvalidInput(f"{file}: a pilot has one level and no period")
    (level,) = plan.levels.values()
    mechanism = level.mechanisms.get(attribute)
    if not isinstance(mechanism, Waves):
        raise InvalidInput(f"{file} asks for {attribute!r} in a view: ask for it alone")
    points = question.domain.points
    return tuple(points.edge(index) for index in range(len(points) + 1)), mechanism


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(files.read(file))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{file} is not what `hearsay query PILOT ATTRIBUTE --json` prints")
    return found


def _estimate(
    found: dict[str, Any], plan: Plan, file: Path, attribute: str, bins: int
) -> tuple[list[float], int]:
    """Return the shares of the bins, and how many reports they are of."""
    try:
        revisions = {cohort["revision"] for cohort in found["cohorts"]}
        columns = found["tables"]["rows"]["columns"]
        shares = [float(share) for share in columns["estimate"]["values"]]
        asked = found["subjects"][0]["name"]
        reports = int(found["reports"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise InvalidInput(
            "the answers are not what `hearsay query PILOT ATTRIBUTE --json` prints"
        ) from None
    if asked != attribute:
        raise InvalidInput(f"the answers are of {asked!r}, not of {attribute!r}")
    if len(shares) != bins:
        raise InvalidInput(
            f"the answers have {len(shares)} bins, {file} declares {bins} for {attribute!r}: give "
            "the file that was registered"
        )
    if revisions != {plan.revision.hex()}:
        raise InvalidInput(
            f"the answers are of another revision of the pilot than {file}: give the file that was "
            "registered"
        )
    return shares, reports
