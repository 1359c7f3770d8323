"""`hearsay plan`: the reports, the epsilon or the error of a survey before it is run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hearsay.plans.kinds import Numeric
from hearsay_server.commands import plotting, plotting_plans
from hearsay_server.commands import prices as pricing
from hearsay_server.commands.connect import AsJson
from hearsay_server.commands.mechanism import Categories, Epsilon, MechanismName, maker
from hearsay_server.commands.plotting import Plot
from hearsay_server.commands.plotting_plans import Axis
from hearsay_server.printing import say, say_json
from hearsay_server.surveys import catalogue
from ldp import InvalidInput, Mechanism
from ldp.planning import sizes

_POWER, _CONFIDENCE = 0.8, 0.95
Confidence = Annotated[float, typer.Option(help="Of the intervals, or of the test.")]


@dataclass(frozen=True)
class _Scale:
    """The parameter to estimate, and its units: frequencies, or a mean in [low, high]."""

    k: int | None
    low: float
    high: float

    @property
    def unit(self) -> float:
        """One unit of the mechanism's own scale, [0, 1] or [-1, 1], in ours."""
        return 1.0 if self.k else (self.high - self.low) / 2

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest value that the parameter can have."""
        return (0.0, 1.0) if self.k else (self.low, self.high)

    def planned(self, truth: float | None) -> float:
        """Return the parameter to plan for; by default 1/k, or the middle of the range."""
        low, high = self.ends
        if truth is None:
            return 1 / self.k if self.k else low + (high - low) / 2
        if not low <= truth <= high:
            raise InvalidInput(f"--truth must lie in [{low:g}, {high:g}], got {truth:g}")
        return truth

    def check_change(self, truth: float, change: float) -> None:
        """Raise `InvalidInput` where the parameter can neither rise nor fall by so much."""
        low, high = self.ends
        if change - max(high - truth, truth - low) > 1e-9 * (high - low):
            raise InvalidInput(
                f"a frequency of {truth:g} cannot change by {change:g}: --change is a share, 0.02 "
                "for two percentage points"
                if self.k
                else f"a mean of {truth:g} cannot change by {change:g} within {low:g} to {high:g}"
            )

    def inner(self, truth: float) -> float:
        """Return a parameter on the mechanism's scale."""
        return truth if self.k else min(1.0, (truth - self.low) / self.unit - 1)

    @property
    def subject(self) -> str:
        return f"each of {self.k} frequencies" if self.k else "the mean"


def plan(
    mechanism: MechanismName = "auto",
    k: Categories = None,
    low: Annotated[float | None, typer.Option(help="The least number; -1 by default.")] = None,
    high: Annotated[float | None, typer.Option(help="The greatest; 1 by default.")] = None,
    epsilon: Epsilon = None,
    n: Annotated[int | None, typer.Option(help="The number of reports (of each period).")] = None,
    half_width: Annotated[
        float | None, typer.Option(help="Of the interval, as a frequency or in your units.")
    ] = None,
    change: Annotated[
        float | None, typer.Option(help="The change between two periods that is to be seen.")
    ] = None,
    power: Annotated[
        float, typer.Option(help="The probability with which the change is to be seen.")
    ] = _POWER,
    different_people: Annotated[
        bool,
        typer.Option(
            "--different-people",
            help="Of --change: nobody answers in both periods, as at two levels.",
        ),
    ] = False,
    panels: Annotated[
        int, typer.Option(help="Of --change: the survey's panels, which tell the error; 0: none.")
    ] = 0,
    truth: Annotated[
        float | None,
        typer.Option(help="The frequency or mean to plan for; by default 1/k or the middle."),
    ] = None,
    confidence: Confidence = _CONFIDENCE,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Intervals that cover all values at once.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what auto compared, and why it chose as it did.")
    ] = False,
    prices: Annotated[
        bool,
        typer.Option("--prices", help="What a looser level is worth, and prices for --levels."),
    ] = False,
    levels: Annotated[str, typer.Option(help="Epsilons of the levels, as 0.5,1,2,4.")] = "",
    survey: Annotated[
        Path | None, typer.Option(help="A survey (TOML) whose levels are priced instead.")
    ] = None,
    respondents: Annotated[
        str, typer.Option(help="How many are expected at each level, as 4000,3000,2000,1000.")
    ] = "",
    budget: Annotated[float | None, typer.Option(help="What all prices may cost together.")] = None,
    highest: Annotated[
        str, typer.Option(help="Of --n invited, the shares whose loosest level is each one.")
    ] = "",
    cost: Annotated[
        str, typer.Option(help="Median cost of epsilon 1 to them, and spread of its logarithm.")
    ] = "",
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Work out the number of reports, the epsilon or the error of a survey before it is run.

    \b
    Give two of --epsilon, --n and --half-width, and learn the third:
      hearsay plan --k 10 --epsilon 1 --half-width 0.01
      hearsay plan --k 10 --epsilon 1 --n 100000
      hearsay plan --low 0 --high 80 --n 50000 --half-width 1
    Or compare two periods by `hearsay ask change`: how many reports of each
    show a change, or how surely so many do:
      hearsay plan --k 10 --epsilon 1 --change 0.01
      hearsay plan --k 10 --epsilon 1 --change 0.01 --n 500000
    Or learn what a looser level is worth, and how to spend a budget on it:
      hearsay plan --k 10 --prices --levels 0.5,1,2,4
      hearsay plan --k 10 --prices --levels 0.5,1,2,4 \\
        --respondents 400,300,200,100 --budget 500
      hearsay plan --prices --survey survey.toml
    """
    if plot is not None:
        plotting.check(plot)
        if prices or change is not None:
            raise InvalidInput("--plot draws the interval by reports: not --prices, nor --change")
    menu = pricing.Asked(levels, survey, respondents, budget, highest, cost)
    if not prices and menu != pricing.Asked():
        raise InvalidInput(
            "--levels, --survey, --respondents, --budget, --highest and --cost go with --prices"
        )
    if k is not None and (low is not None or high is not None):
        raise InvalidInput("give --k for categories, or --low and --high for numbers, not both")
    scale = _Scale(k, -1.0 if low is None else low, 1.0 if high is None else high)
    if k is None:
        Numeric(scale.low, scale.high, clamp=False)
    make = maker(mechanism, k)
    planned = scale.planned(truth)
    inner = scale.inner(planned)
    if prices:
        given = {
            "--epsilon": epsilon is not None,
            "--half-width": half_width is not None,
            "--change": change is not None,
            "--power": power != _POWER,
            "--different-people": different_people,
            "--panels": panels != 0,
            "--confidence": confidence != _CONFIDENCE,
            "--simultaneous": simultaneous,
            "--explain": explain,
        }
        if left := [name for name, is_given in given.items() if is_given]:
            raise InvalidInput(f"--prices goes without {', '.join(left)}")
        if survey is not None and (mechanism != "auto" or {k, low, high, truth} != {None}):
            raise InvalidInput(
                "--survey has its own questions and mechanisms: leave out --k, --low, --high, "
                "--truth and the mechanism"
            )

        def one_report(spent: float) -> float:
            return float(np.max(make(spent).variance(inner, 1))) * scale.unit**2

        pricing.show(menu, one_report, n, as_json)
        return
    found: dict[str, Any]
    if change is not None:
        if panels and different_people:
            raise InvalidInput("choose one of --panels and --different-people")
        options = {
            "confidence": confidence,
            "same_people": not (panels or different_people),
            "panels": panels,
        }
        if simultaneous:
            raise InvalidInput(
                "--change plans the test of one value: leave out --simultaneous, and for m values "
                "give --confidence 1 - 0.05 / m"
            )
        scale.check_change(planned, change)
        found = _two_periods(make, inner, scale, epsilon, n, half_width, change, power, options)
    elif different_people or panels or power != _POWER:
        raise InvalidInput("--different-people, --panels and --power go with --change")
    else:
        found = _one_period(make, inner, scale, epsilon, n, half_width, confidence, simultaneous)
    spent = float(found["epsilon"])
    built = make(spent)
    if plot is not None:
        sized: dict[str, Any] = {"confidence": confidence, "simultaneous": simultaneous}
        plotting_plans.curve(
            f"{scale.subject.capitalize()}, {built.name} at epsilon {spent:.4g}",
            (float(found["n"]), float(found["half_width"])),
            lambda n: sizes.half_width(built, inner, max(1, round(n)), **sized) * scale.unit,
            (
                Axis("reports", lambda n: f"{n:,.0f} reports"),
                Axis(f"half of a {confidence:.4g} interval", lambda half: f"+-{half:.3g}"),
            ),
            plot,
        )
    if explain and k is not None and mechanism == "auto":
        found["why"] = str(catalogue.automatic(k, spent))
    if as_json:
        document = {"mechanism": built.name, "k": k, "bytes": built.code_bytes, **found}
        asked = {"truth": planned, "confidence": confidence, "simultaneous": simultaneous}
        say_json(document | asked)
        return
    say(_sentence(found, scale, confidence, simultaneous))
    size = "1 byte" if built.code_bytes == 1 else f"{built.code_bytes} bytes"
    say(f"mechanism {built.name}, {size} a report")
    if "why" in found:
        say(found["why"])


def _one_period(
    make: Callable[[float], Mechanism],
    truth: float,
    scale: _Scale,
    epsilon: float | None,
    n: int | None,
    half_width: float | None,
    confidence: float,
    simultaneous: bool,
) -> dict[str, Any]:
    """Return all three of epsilon, n and half-width, of which two are given."""
    if sum(value is None for value in (epsilon, n, half_width)) != 1:
        raise InvalidInput("give two of --epsilon, --n and --half-width, or --change")
    options: dict[str, Any] = {"confidence": confidence, "simultaneous": simultaneous}
    if half_width is None:
        assert epsilon is not None and n is not None
        width = sizes.half_width(make(epsilon), truth, n, **options) * scale.unit
        return {"finds": "half_width", "epsilon": epsilon, "n": n, "half_width": width}
    target = half_width / scale.unit
    if n is None:
        assert epsilon is not None
        n = sizes.sample_size(make(epsilon), truth, target, **options)
        return {"finds": "n", "epsilon": epsilon, "n": n, "half_width": half_width}
    epsilon = sizes.least_epsilon(make, truth, n, target, **options)
    return {"finds": "epsilon", "epsilon": epsilon, "n": n, "half_width": half_width}


def _two_periods(
    make: Callable[[float], Mechanism],
    truth: float,
    scale: _Scale,
    epsilon: float | None,
    n: int | None,
    half_width: float | None,
    change: float,
    power: float,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Return the number of reports of each period for a power, or the power of `n` reports."""
    if epsilon is None or half_width is not None:
        raise InvalidInput("--change goes with --epsilon and perhaps --n, without --half-width")
    built, shift = make(epsilon), change / scale.unit
    finds = "n" if n is None else "power"
    if n is None:
        n = sizes.two_wave_sample_size(built, truth, shift, power=power, **options)
    power = sizes.two_wave_power(built, truth, shift, n, **options)
    return {"finds": finds, "epsilon": epsilon, "n": n, "change": change, "power": power}


def _sentence(found: dict[str, Any], scale: _Scale, confidence: float, simultaneous: bool) -> str:
    n, spent = f"{found['n']:,}", f"epsilon {found['epsilon']:.6g}"
    if "change" in found:
        return (
            f"two periods of {n} reports each at {spent} show a change of {found['change']:g}\n"
            f"  with probability {found['power']:.3f} (two-sided test at {1 - confidence:.3g})"
        )
    kind = "simultaneous " if simultaneous else ""
    return (
        f"{n} reports at {spent} give {scale.subject} a {kind}{confidence:.4g} interval of "
        f"+-{found['half_width']:.4g}"
    )
