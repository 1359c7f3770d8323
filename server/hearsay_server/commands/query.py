"""`hearsay query`: estimates at the command line."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.asking import reading
from hearsay.asking.analyst import (
    By,
    Options,
    compare_request,
    range_of,
    read_margins,
)
from hearsay.asking.answer import Answer
from hearsay.asking.changes import ChangeOptions
from hearsay.asking.margins import messages
from hearsay.asking.shuffled import DELTA
from hearsay.asking.texts import message, part_names, parts, selected, sets_of
from hearsay.plans.kinds import Strings
from hearsay.v1 import analyst_pb2
from hearsay_server.commands import connect, excluding, mixing, plotting, words
from hearsay_server.commands.changing import OverTime
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Insecure, Target, Token
from hearsay_server.commands.selecting import First, Last, Level, Map, Period, Where
from hearsay_server.commands.shown import Shown, warn
from hearsay_server.commands.together import TwoAttributes
from ldp.errors import InvalidInput

_PAIRS = 20
"""Pairs of items that are shown unless --top says more."""

# Headings of the help, under which the options stand.
_ESTIMATES = "Intervals and estimates"
_FORGERY = "Forged reports"
_CHANGES = "Differences and changes"
_SETS = "Sets and words"
_NUMBERS = "Numbers"
_TWO = "Two attributes"
_WEIGHTS = "Weights by known shares"
_OUTPUT = plotting.OUTPUT


def query(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey's name.")],
    attribute: Annotated[str, typer.Argument(help="The attribute's name; all without it.")] = "",
    other: Annotated[
        str, typer.Argument(help="Another attribute, with --joint, --independent or --given.")
    ] = "",
    level: Level = None,
    period: Period = None,
    first: First = "",
    last: Last = "",
    maps: Map = None,
    where: Where = None,
    by: Annotated[
        str,
        typer.Option(
            help="One answer for each level, period, map, or value of this property.",
            rich_help_panel=_ESTIMATES,
        ),
    ] = "",
    confidence: Annotated[
        float, typer.Option(help="Of the intervals.", rich_help_panel=_ESTIMATES)
    ] = 0.95,
    simultaneous: Annotated[
        bool,
        typer.Option(
            "--simultaneous",
            help="Intervals that cover all values at once.",
            rich_help_panel=_ESTIMATES,
        ),
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            help="How levels are pooled: mle, gls, inverse_variance or scalar.",
            rich_help_panel=_ESTIMATES,
        ),
    ] = "",
    consistent: Annotated[
        str,
        typer.Option(
            help="Make frequencies a distribution: norm, norm-mul, norm-cut, norm-sub, base-cut, "
            "power or power-ns.",
            rich_help_panel=_ESTIMATES,
        ),
    ] = "",
    forged: Annotated[
        int | None,
        typer.Option(
            help="How far could so many forged reports move it?", rich_help_panel=_FORGERY
        ),
    ] = None,
    recover: Annotated[
        float | None,
        typer.Option(
            help="Take out so many forged reports per genuine one.", rich_help_panel=_FORGERY
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help="Only so many rows, those of the largest estimates.", rich_help_panel=_ESTIMATES
        ),
    ] = None,
    values: Annotated[
        str,
        typer.Option(
            help='Only the rows of these values: A,B; one with a comma as "A,B".',
            rich_help_panel=_ESTIMATES,
        ),
    ] = "",
    suspicions: Annotated[
        bool,
        typer.Option(
            "--suspicions",
            help="Test whether the stored reports look forged.",
            rich_help_panel=_FORGERY,
        ),
    ] = False,
    suspect: Annotated[
        list[str] | None,
        typer.Option(
            help="A value that may have been promoted; repeatable.", rich_help_panel=_FORGERY
        ),
    ] = None,
    sums: Annotated[
        list[str] | None,
        typer.Option(
            "--sum",
            help='Values to add up, such as "bus,train"; repeatable.',
            rich_help_panel=_ESTIMATES,
        ),
    ] = None,
    compare: Annotated[
        str,
        typer.Option(
            help="Test two levels, maps, periods or values of a property: level=A,B, platform=A,B, "
            "period=A,B or A..B,C..D.",
            rich_help_panel=_CHANGES,
        ),
    ] = "",
    change: Annotated[
        tuple[str, str] | None,
        typer.Option(
            help="By how much a period differs from another.",
            metavar="PERIOD PERIOD",
            rich_help_panel=_CHANGES,
        ),
    ] = None,
    trend: Annotated[
        bool,
        typer.Option(
            "--trend", help="The change per period, on average.", rich_help_panel=_CHANGES
        ),
    ] = False,
    breaks: Annotated[
        bool,
        typer.Option(
            "--breaks",
            help="The period in which each value changed most clearly.",
            rich_help_panel=_CHANGES,
        ),
    ] = False,
    sizes: Annotated[
        bool,
        typer.Option(
            "--sizes",
            help="How many items people's sets have, instead of which.",
            rich_help_panel=_SETS,
        ),
    ] = False,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Which share of people have both of two items of a set.",
            rich_help_panel=_SETS,
        ),
    ] = False,
    discover: Annotated[
        bool,
        typer.Option(
            "--discover",
            help="Which words are frequent, of an attribute of strings.",
            rich_help_panel=_SETS,
        ),
    ] = False,
    candidates: Annotated[
        Path | None,
        typer.Option(
            help="The shares of the words in this file, one a line, of UTF-8.",
            rich_help_panel=_SETS,
        ),
    ] = None,
    distribution: Annotated[
        bool,
        typer.Option(
            "--distribution",
            help="How a number is distributed, instead of its mean.",
            rich_help_panel=_NUMBERS,
        ),
    ] = False,
    bins: Annotated[
        int,
        typer.Option(
            help="Of the distribution; 0: as many as the reports can show.",
            rich_help_panel=_NUMBERS,
        ),
    ] = 0,
    step: Annotated[
        float | None,
        typer.Option(
            help="Of the distribution's values: 1 for whole numbers. Else the survey's.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None,
    quantile: Annotated[
        list[float] | None,
        typer.Option(help="Of the distribution; repeatable.", rich_help_panel=_NUMBERS),
    ] = None,
    between: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="The share of the numbers from LOW to HIGH.",
            metavar="LOW HIGH",
            rich_help_panel=_NUMBERS,
        ),
    ] = None,
    other_between: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="The same of the other attribute: of both together.",
            metavar="LOW HIGH",
            rich_help_panel=_TWO,
        ),
    ] = None,
    cdf: Annotated[
        bool,
        typer.Option(
            "--cdf",
            help="The share below each number that was collected.",
            rich_help_panel=_NUMBERS,
        ),
    ] = False,
    joint: Annotated[
        bool,
        typer.Option("--joint", help="The joint table of two attributes.", rich_help_panel=_TWO),
    ] = False,
    independent: Annotated[
        bool,
        typer.Option(
            "--independent",
            help="Test whether two attributes are independent.",
            rich_help_panel=_TWO,
        ),
    ] = False,
    given: Annotated[
        str,
        typer.Option(
            help="One of the two: the other within its groups, and compared.", rich_help_panel=_TWO
        ),
    ] = "",
    reference: Annotated[
        str,
        typer.Option(
            help="Of --given: the group that the others are compared with.", rich_help_panel=_TWO
        ),
    ] = "",
    nonnegative: Annotated[
        bool,
        typer.Option(
            "--nonnegative",
            help="Of --joint: the most likely table, without negative shares.",
            rich_help_panel=_TWO,
        ),
    ] = False,
    margins: Annotated[
        list[Path] | None,
        typer.Option(
            help="Weight public groups to known shares, a CSV of properties and share; repeatable.",
            rich_help_panel=_WEIGHTS,
        ),
    ] = None,
    least: Annotated[
        int | None,
        typer.Option(
            help="Of --margins: join values with fewer people, 2 at least; by default 10.",
            rich_help_panel=_WEIGHTS,
        ),
    ] = None,
    plot: plotting.Plot = None,
    shuffled: Annotated[
        bool,
        typer.Option(
            "--shuffled",
            help="Also say what a shuffler's mixing gives these records' privacy.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            help="Ask again every so many seconds if reports came in.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Ask for attributes' debiased frequencies, or means, with their errors."""
    used = excluding.given(context)
    excluding.check(used)
    asked_alone = not distribution
    distribution = "--distribution" in used
    over_time = OverTime(change, trend, breaks)
    two = TwoAttributes(joint, independent, given, nonnegative, reference)
    if other_between is not None and (not other or between is None or two.asked):
        raise InvalidInput("--other-between is of two attributes, with --between for the first")
    if two.asked or (other and other_between is None):
        two.check(attribute, other)
    if plot is not None:
        if asked_alone and distribution and not cdf:
            raise InvalidInput("--plot draws --distribution and --cdf: add one of them")
        plotting.check(plot)
    show = Shown(as_json, as_csv, top is not None or bool(values))
    chosen = selected(level, period, first, last, maps, where)
    selection = message(chosen)
    options: Options = {
        **chosen,  # type: ignore[typeddict-item]
        "confidence": confidence,
        "simultaneous": simultaneous,
        "method": method,
        "consistency": consistent,
    }
    if forged is not None:
        if forged < 0:
            raise InvalidInput(f"--forged must be >= 0, got {forged}")
        options["forged"] = forged
    if recover is not None:
        options["recover"] = recover
    if top is not None:
        options["top"] = top
    if sizes:
        options["sizes"] = True
    if margins:
        options["margins"] = read_margins(margins)
    if least is not None:
        if least < 2 or not margins:
            raise InvalidInput(f"--least is a number >= 2, with --margins, got {least}")
        options["least"] = least
    if values:
        options["values"] = next(csv.reader([values]))
    with Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst:
        if two.asked:
            two.ask(
                analyst,
                survey,
                attribute,
                other,
                show,
                confidence=confidence,
                simultaneous=simultaneous,
                method=method,
                selection=chosen,
                plot=plot,
            )
        elif discover or candidates:
            found_words = words.ask(
                analyst, survey, attribute, candidates, top, confidence, selection
            )
            show.words(found_words)
            if plot is not None:
                plotting.draw([reading.estimate(found_words, "words")], plot)
        elif suspicions:
            asked = analyst_pb2.SuspicionsRequest(
                survey=survey, attribute=attribute, targets=suspect or (), selection=selection
            )
            tests = analyst.query_suspicions(asked)
            show.suspicions(tests)
            if plot is not None:
                plotting.draw([reading.suspicions(tests, survey, attribute)], plot)
        elif between is not None and other_between is not None:
            rectangle = analyst_pb2.DistributionRequest(
                survey=survey,
                attribute=attribute,
                ranges=[range_of(between)],
                other=other,
                other_ranges=[range_of(other_between)],
                confidence=confidence,
                selection=selection,
            )
            show.distribution(analyst.query_distribution(rectangle))
        elif pairs:
            together = analyst.query_pairs(
                analyst_pb2.PairsRequest(
                    survey=survey,
                    attribute=attribute,
                    top=top or _PAIRS,
                    confidence=confidence,
                    selection=selection,
                )
            )
            show.pairs(together)
            if plot is not None:
                plotting.draw([reading.pairs(together)], plot)
        elif distribution:
            question = analyst_pb2.DistributionRequest(
                survey=survey,
                attribute=attribute,
                bins=bins,
                step=step,
                quantiles=quantile or (() if asked_alone else (0.25, 0.5, 0.75)),
                ranges=[] if between is None else [range_of(between)],
                cumulative=cdf,
                confidence=confidence,
                selection=selection,
                margins=messages(options.get("margins", {})),
                least=least,
            )
            found = analyst.query_distribution(question)
            if asked_alone and not bins:
                del found.bins[:]
            show.distribution(found)
            if plot is not None:
                plotting.draw([reading.distribution(found)], plot)
        elif watch is not None:
            sets = sets_of(sums)
            for answer in analyst.watch_query(
                survey, attribute, sums=sets, interval=watch, **options
            ):
                show.estimates([answer])
        elif over_time.asked:
            names = [attribute] if attribute else _attributes(analyst, survey)
            asked_of: ChangeOptions = {
                **chosen,
                "confidence": confidence,
                "simultaneous": simultaneous,
                "sums": sets_of(sums),
                "ranges": [] if between is None else [between],
            }
            over_time.ask(analyst, survey, names, asked_of, show, plot)
        elif compare:
            names = [attribute] if attribute else _attributes(analyst, survey)
            both = parts(compare, chosen)
            compared = [
                analyst.query_compare(
                    compare_request(
                        survey, name, *both, confidence=confidence, simultaneous=simultaneous
                    )
                )
                for name in names
            ]
            show.comparisons(compared, part_names(compare))
            if plot is not None:
                plotting.draw([reading.compare(each) for each in compared], plot)
        else:
            names = [attribute] if attribute else _attributes(analyst, survey)
            answers: list[analyst_pb2.EstimateResponse] = []
            for name in names:
                if by:
                    kind = _BY.get(by, "PROPERTY")
                    of = "" if by in _BY else by
                    answers += analyst.query_by(survey, name, kind, sets_of(sums), of, **options)
                else:
                    answers.append(analyst.query(survey, name, sets_of(sums), **options))
            show.estimates(answers, by)
            if shuffled:
                mixing.show(analyst.mixes(survey, **chosen), DELTA, forged or 0, as_json=False)
            if plot is not None:
                plotting.draw(_drawn(answers, by), plot)


def _drawn(answers: Sequence[analyst_pb2.EstimateResponse], by: str) -> list[Answer]:
    """Return answers to draw: the groups of an attribute as one."""
    if not by:
        return [reading.estimate(answer) for answer in answers]
    names = dict.fromkeys(answer.attribute for answer in answers)
    return [reading.by([a for a in answers if a.attribute == name], by) for name in names]


def _attributes(analyst: Analyst, survey: str) -> list[str]:
    """Return the survey's attributes that have reports, in its order; all of them if none has.

    Attributes of strings are left out: their words are asked about in another way.
    """
    shown = analyst.show_survey(survey)
    plan = hearsay.plans.plan.parse(shown.plan)
    answered = {each.attribute for each in shown.reports}
    names = [
        name
        for name, attribute in plan.attributes.items()
        if not isinstance(attribute.domain, Strings)
    ]
    if len(names) < len(plan.attributes):
        left = ", ".join(name for name in plan.attributes if name not in names)
        if not names:
            raise InvalidInput(f"name one of {left}, with --discover or --candidates FILE")
        warn(f"{left}: words are asked about by themselves, with --discover or --candidates FILE")
    return [name for name in names if not answered.isdisjoint(plan.questions_of([name]))] or names


_BY: dict[str, By] = {"level": "LEVEL", "period": "PERIOD", "map": "MAP"}
"""What `--by` names besides properties."""
