"""A survey played through on real input: devices, a server process, an analyst."""

import contextlib
import importlib.util
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.plans import period
from hearsay.plans.domains import Binned, Domain, Grid, Numeric, Ratings, SetOf, Strings
from hearsay.plans.views import combination
from hearsay.sending.transport import open_calls
from hearsay.v1 import admin_pb2, analyst_pb2, collector_pb2, survey_pb2
from hearsay_server.clock import system
from hearsay_server.demo.devices import Answer, Answers, Respondent, Sent, deliver, start
from hearsay_server.demo.results import Comparison, draw, show
from hearsay_server.ingest.intake import GRACE
from hearsay_server.surveys import people
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.describe import describe
from ldp.errors import InvalidInput, MissingExtra, ServerFailed

_START_TIMEOUT = 30.0


@dataclass(frozen=True)
class Source:
    """A survey, and every respondent's true answers, by attribute name."""

    title: str
    survey: survey_pb2.Survey
    respondents: Sequence[Answers]
    left_out: int = 0
    """The number of answers outside the survey's domains; they are withheld."""
    moments: Sequence[datetime] = ()
    """When each respondent answers; empty: now."""
    properties: Sequence[Mapping[str, str]] = ()
    """The public properties of each respondent's device; empty: none are given."""


def redbook() -> Source:
    """Load Fair's marriage survey of 1974 from the statsmodels package."""
    # The file alone: to import the package takes longer than a thousand devices.
    found = importlib.util.find_spec("statsmodels")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(
            "the survey is in the package statsmodels: pip install 'hearsay-ldp[demo]'"
        )
    table = _asked(
        pd.read_csv(Path(found.submodule_search_locations[0]) / "datasets/fair/fair.csv")
    )
    text = resources.files("hearsay_server.demo").joinpath("redbook.toml").read_text("utf-8")
    survey = surveys.from_toml(text, "redbook.toml")
    title = f"Fair's marriage survey of 1974: {len(table):,} respondents"
    return _source(title, survey, table)


def _asked(fair: pd.DataFrame) -> pd.DataFrame:
    """Return Fair's table with the columns of redbook.toml; sets and ratings as `_answer` reads."""
    table = fair[["rate_marriage", "yrs_married", "age", "religious"]].copy()
    for name, count in (("affair", fair["affairs"]), ("children", fair["children"])):
        table[name] = np.where(count > 0, "yes", "no")
    years = {"high school": 12, "college": 14, "graduate school": 17}  # of education, at least
    table["schools"] = [
        ";".join(school for school, least in years.items() if of >= least) for of in fair["educ"]
    ]
    student = 1  # who has no job to rate
    table["jobs"] = [
        ";".join(f"{who}={job}" for who, job in (("wife", wife), ("husband", husband)) if job > student)
        for wife, husband in zip(fair["occupation"], fair["occupation_husb"], strict=True)
    ]
    return table


def from_csv(
    file: Path, survey: survey_pb2.Survey, periods: str = "", now: datetime | None = None
) -> Source:
    """Load a table of one's own: comma-separated, the first line naming the columns.

    A column called "Hours per week" is the attribute hours_per_week, or the property of that name,
    which need not be there. The column `periods` says when a respondent answers: its values, in
    order, stand for the last periods of the survey that are over `now`, by default by the system's
    clock. Raises `InvalidInput` where the file cannot be read, lacks a column of the survey, or
    holds no answer to it, and where there are more periods than a server still takes reports of.
    """
    # Everything as text: whether "1" is a category or a number is for the survey to say.
    table = pd.DataFrame(dict(people.read(file).columns))
    if missing := [a.name for a in survey.attributes if a.name not in table.columns]:
        raise InvalidInput(
            f"{file} has no column {missing[0]!r}; its columns are {', '.join(table.columns)}"
        )
    title = f"{file.name}: {len(table):,} respondents"
    if not periods:
        return _source(title, survey, table)
    if periods not in table.columns:
        raise InvalidInput(
            f"{file} has no column {periods!r}; its columns are {', '.join(table.columns)}"
        )
    return _source(title, survey, table, _moments(table[periods], survey.period, now or system()))


def _moments(names: "pd.Series[str]", unit: str, now: datetime) -> list[datetime]:
    """Return when each row's respondent answers: in the middle of the period of its name."""
    if not unit:
        raise InvalidInput("the survey has no period: everybody answers it once, so leave it out")
    order = sorted(set(names))
    moments: list[datetime] = []
    begin = period.start(unit, period.label(unit, now))
    for _ in order:
        end = begin
        begin = period.start(unit, period.label(unit, end - timedelta(seconds=1)))
        moments.append(begin + (end - begin) / 2)
    if moments[-1] < now - GRACE:
        raise InvalidInput(
            f"there are {len(order)} periods, and reports are taken for {GRACE.days} days: give "
            f"the survey a shorter period than {unit}"
        )
    of = dict(zip(order, reversed(moments), strict=True))
    return [of[name] for name in names]


def _source(
    title: str,
    survey: survey_pb2.Survey,
    table: pd.DataFrame,
    moments: Sequence[datetime] = (),
) -> Source:
    plan = hearsay.plans.plan.parse(surveys.resolve(survey))
    respondents: list[dict[str, Answer]] = [{} for _ in range(len(table))]
    left_out = 0
    for name, attribute in plan.attributes.items():
        for answers, cell in zip(respondents, table[name], strict=True):
            try:
                answer = _answer(attribute.domain, cell)
                attribute.domain.encode(answer)
            except ValueError:
                left_out += 1
            else:
                answers[name] = answer
    if not any(respondents):
        raise InvalidInput("the table holds no answer that has a place in the survey")
    kept = [number for number, answers in enumerate(respondents) if answers]
    return Source(
        title,
        survey,
        [respondents[number] for number in kept],
        left_out,
        [moments[number] for number in kept] if moments else [],
        [_properties(plan, table, number) for number in kept] if plan.properties else [],
    )


def _properties(
    plan: hearsay.plans.plan.Plan, table: pd.DataFrame, number: int
) -> Mapping[str, str]:
    """Return the declared values of public properties in a row of the table."""
    found = {}
    for each in plan.properties.declared:
        if each.name in table.columns:
            value = str(table[each.name].iloc[number]).strip()
            if value in each.values:
                found[each.name] = value
    return found


def _answer(domain: Domain, cell: object) -> Answer:
    """Return a cell as an answer: a text as `people.answer`, a whole float as its digits."""
    whole = isinstance(cell, float) and cell.is_integer()
    return people.answer(domain, str(int(cell)) if whole and isinstance(cell, float) else str(cell))


def play(
    source: Source, *, plot: Path, data: Path | None, seed: int | None, console: Console
) -> list[Comparison]:
    """Run the whole demo, print to `console`, and return the estimates beside the truth."""
    begin = time.monotonic()
    console.print(f"[bold]{source.title}[/bold]")
    if source.left_out:
        console.print(
            f"{source.left_out:,} answers fit no place in the survey and are withheld: "
            "`hearsay survey check` names them"
        )
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(start())  # while the server starts
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hearsay-")))
        address = stack.enter_context(server_process(folder))
        stack.callback(pool.terminate)  # before the server ends, whatever happens
        console.print(f"a server runs at {address}, its data in {folder}")
        with contextlib.closing(open_calls(address)) as calls:
            request = admin_pb2.CreateSurveyRequest(survey=source.survey)
            calls.call("Admin/CreateSurvey", request, admin_pb2.SurveyStatus, 30.0)
        plan = surveys.resolve(source.survey)
        exhibit = _collect(pool, source, address, plan, seed, console)
        parsed = hearsay.plans.plan.parse(plan)
        results = _ask(source, parsed, address)
    _show_exhibit(exhibit, parsed, console)
    show(results, console)
    draw(results, source.title, plot)
    covered = sum(result.covered for result in results)
    console.print(
        f"{covered} of {len(results)} 95% intervals cover the truth. "
        f"{time.monotonic() - begin:.0f} s in all. The plot is in [bold]{plot}[/bold]."
    )
    _show_next(source.survey, data, console)
    return results


def _show_next(survey: survey_pb2.Survey, data: Path | None, console: Console) -> None:
    command = Path(sys.executable).with_name("hearsay")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    kept = data or Path("demo-data")
    lines = ["", "Next, try:"]
    if data is None:
        lines.append(f"  {command} demo --data {kept}   # again, keeping what the server stored")
    lines.append(f"  {command} serve --data {kept}  # then, in another terminal:")
    first = survey.attributes[0]
    of_words = " --discover" if first.HasField("strings") and not first.strings.candidates else ""
    lines.append(f"  {command} query {survey.name} {first.name}{of_words}")
    if data is not None:
        lines.append(f"  {command} survey show {survey.name}")
    console.print("\n".join(lines), soft_wrap=True, highlight=False)


@contextlib.contextmanager
def server_process(folder: Path) -> Iterator[str]:
    """Run `hearsay serve` on a free port while the context lasts; yield its address."""
    command = [sys.executable, "-m", "hearsay_server", "serve", "--listen", "127.0.0.1:0"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, "--data", str(folder)], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # ends at once where the process does
            if not line.startswith("listening on "):
                process.wait(_START_TIMEOUT)
                log.seek(0)
                raise ServerFailed(f"the server did not start: {log.read().strip()}")
            yield line.removeprefix("listening on ").strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_START_TIMEOUT)
            if process.stdout is not None:
                process.stdout.close()


def _collect(
    pool: Pool, source: Source, address: str, plan: bytes, seed: int | None, console: Console
) -> Sent:
    """Let every respondent's device send; return one device's batch."""
    chooser = random.Random(seed)
    levels = sorted(source.survey.levels)
    parsed = hearsay.plans.plan.parse(plan)
    choices = {name: ("", *maps) for name in parsed.attributes if (maps := parsed.maps(name))}
    respondents = [
        Respondent(
            number,
            chooser.choice(levels),
            answers,
            {name: chooser.choice(maps) for name, maps in choices.items()},
            source.moments[number] if source.moments else None,
            source.properties[number] if source.properties else {},
        )
        for number, answers in enumerate(source.respondents)
    ]
    columns = (TextColumn("devices"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    first = None
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("devices", total=len(respondents))
        for every in deliver(pool, address, plan, respondents, seed):
            first = first or next(filter(None, every), None)
            progress.advance(task, len(every))
    if first is None:
        raise InvalidInput("nobody had an answer to an attribute that was drawn for them")
    return first


def _ask(source: Source, plan: hearsay.plans.plan.Plan, address: str) -> list[Comparison]:
    results = []
    with Analyst(address) as analyst:
        for name in (*plan.attributes, *plan.views):
            domain = plan.asked(name).domain
            given = _given(source, plan, name)
            if isinstance(domain, Binned):
                results += _ask_ranges(analyst, plan.survey, name, domain, given)
                continue
            if isinstance(domain, Strings):
                frame = _words(analyst, plan.survey, name, domain)
                given = [domain.encode(answer) for answer in given]
            else:
                frame = analyst.estimate(plan.survey, name)
            if isinstance(domain, Ratings):
                results += sorted(
                    _rated(name, domain, given, frame), key=lambda each: each.attribute == name
                )
                continue
            for label, row in frame.iterrows():
                results.append(
                    Comparison(
                        attribute=name,
                        label=str(label),
                        estimate=row["estimate"],
                        standard_error=row["standard_error"],
                        low=row["low"],
                        high=row["high"],
                        truth=_truth(domain, given, str(label)),
                    )
                )
    return results


def _words(analyst: Analyst, survey: str, name: str, domain: Strings) -> pd.DataFrame:
    """Ask for the shares of the words that the survey lists, or else for the frequent words."""
    if domain.candidates:
        return analyst.frequencies_of(survey, name)
    return analyst.heavy_hitters(survey, name)


def _given(source: Source, plan: hearsay.plans.plan.Plan, name: str) -> list[Any]:
    """Return the answers that are reported to an attribute, or to a view: its combinations.

    An attribute in several views has the answers to each of them, of those who answered all of it.
    """
    wanted, found = plan.parts(name), []
    for question in plan.questions_of(wanted):
        asked = plan.parts(question)
        for answers in source.respondents:
            if answers.keys() >= set(asked):
                found.append(
                    combination([_label(plan, part, answers[part]) for part in wanted])
                    if name in plan.views
                    else answers[name]
                )
    return found


def _label(plan: hearsay.plans.plan.Plan, attribute: str, answer: object) -> str:
    """Return a value, or the bin of a number, as the combinations of a view have it."""
    domain = plan.attributes[attribute].domain
    return domain.labels[domain.encode(answer)] if isinstance(domain, Binned) else str(answer)


def _ask_ranges(
    analyst: Analyst, survey: str, name: str, domain: Binned, given: Sequence[Any]
) -> list[Comparison]:
    """Ask for the shares of as many ranges as the reports can show; of two where they can't any."""
    answer = analyst.query_distribution(
        analyst_pb2.DistributionRequest(survey=survey, attribute=name)
    )
    if not answer.bins:
        answer = analyst.query_distribution(
            analyst_pb2.DistributionRequest(survey=survey, attribute=name, bins=2)
        )
    counts = np.bincount([domain.encode(answer) for answer in given], minlength=domain.count)
    return [
        Comparison(
            attribute=name,
            label=each.share.label,
            estimate=each.share.estimate,
            standard_error=each.share.standard_error,
            low=each.share.low,
            high=each.share.high,
            truth=float(domain.points.overlaps(each.left, each.right) @ counts / len(given)),
        )
        for each in answer.bins
    ]


def _truth(domain: Domain | Grid, given: Sequence[Any], label: str) -> float:
    if isinstance(domain, Numeric):
        numbers = np.array(given, dtype=float)
        return float(np.clip(numbers, domain.low, domain.high).mean())
    if isinstance(domain, SetOf):
        # Of a set that is too large as many items count as may, drawn at random.
        return sum(min(1.0, domain.most / len(s)) for s in given if label in s) / len(given)
    return given.count(label) / len(given)


def _rated(
    name: str, domain: Ratings, given: Sequence[Mapping[str, float]], frame: pd.DataFrame
) -> Iterator[Comparison]:
    """Yield the shares of respondents who rated each key, and the mean ratings that are known."""
    for label, row in frame.iterrows():
        key = str(label)
        counted = [(min(1.0, domain.most / len(table)), table) for table in given if key in table]
        weight = sum(share for share, _ in counted)
        yield Comparison(
            attribute=f"{name}: who rated",
            label=key,
            estimate=row["share"],
            standard_error=row["share_standard_error"],
            low=row["share_low"],
            high=row["share_high"],
            truth=weight / len(given),
        )
        if not math.isnan(row["estimate"]):
            yield Comparison(
                attribute=name,
                label=key,
                estimate=row["estimate"],
                standard_error=row["standard_error"],
                low=row["low"],
                high=row["high"],
                truth=sum(share * table[key] for share, table in counted) / max(weight, 1e-9),
            )


def _in_words(answer: Answer) -> str:
    if isinstance(answer, float):
        return f"{answer:g}"
    if isinstance(answer, Mapping):
        return escape(", ".join(f"{key} {rating:g}" for key, rating in answer.items()) or "none")
    return escape(answer if isinstance(answer, str) else ", ".join(answer) or "none")


def _show_exhibit(exhibit: Sent, plan: hearsay.plans.plan.Plan, console: Console) -> None:
    batch = collector_pb2.Batch.FromString(exhibit.batch)
    level = plan.level(exhibit.respondent.level)
    table = Table("attribute", "the truth, kept", "what left the device", "epsilon")
    columns = {column.attribute: column for column in batch.columns}
    for name, by_map in level.by_map.items():
        if name in columns:
            column = columns[name]
            mechanism = by_map[column.map]
            kept = [exhibit.respondent.answers[part] for part in plan.parts(name)]
            table.add_row(
                f"{name}, map {column.map}" if column.map else name,
                ", ".join(map(_in_words, kept)),
                escape(describe(plan.questions[name].domain, mechanism, column.codes)),
                f"{mechanism.realised_epsilon:.3f}",
            )
    console.print(
        f"\nWhat one device really sent: {batch.ByteSize()} bytes, at level "
        f"{level.name!r} (epsilon {level.epsilon:g} for the whole record)"
    )
    console.print(table)
