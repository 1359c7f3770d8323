"""A survey played through on real input: devices, a server process, an analyst."""

import contextlib
import math
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.plans.kinds import Binned, ByKind, Domain, Grid, Kind, Numeric, Ratings, SetOf, Strings
from hearsay.plans.views import combination
from hearsay.sending.transport import open_calls
from hearsay.v1 import admin_pb2, survey_pb2
from hearsay_server import cells
from hearsay_server.demo.devices import Respondent, Sent, deliver, start
from hearsay_server.demo.exhibits import show_device, show_devices
from hearsay_server.demo.results import Comparison, draw, show
from hearsay_server.demo.sources import Source
from hearsay_server.printing import Console, headed
from hearsay_server.surveys import survey as surveys
from hearsay_server.wrapping import print_wrapped
from ldp.errors import InvalidInput, ServerFailed

_START_TIMEOUT = 30.0

_ANSWER_TIMEOUT = 300.0
"""Seconds for an estimate: the process that makes one gives way to all else on the machine."""


def play(
    source: Source,
    *,
    plot: Path,
    data: Path | None,
    seed: int | None,
    console: Console,
    stay: bool = False,
) -> list[Comparison]:
    """Run the whole demo, print to `console`, and return the estimates beside the truth.

    With `stay` the server goes on until Ctrl-C or SIGTERM.
    """
    begin = time.monotonic()
    console.print(headed(source.title))
    if source.order:
        order = ", ".join(f"{name} ({label})" for label, name in source.order.items())
        print_wrapped(f"{len(source.order):,} periods in this order: {order}", console)
    if source.left_out:
        console.print(
            f"{source.left_out:,} answers fit no place in the survey and are withheld: "
            "`hearsay survey check` names them"
        )
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(start())  # while the server starts
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hearsay-")))
        server = stack.enter_context(server_process(folder))
        stack.callback(pool.terminate)  # before the server ends, whatever happens
        console.print(f"a server runs at {server.address}, its data in {folder}")
        with contextlib.closing(open_calls(server.address)) as calls:
            request = admin_pb2.CreateSurveyRequest(survey=source.survey)
            calls.call("Admin/CreateSurvey", request, admin_pb2.SurveyStatus, 30.0)
        page = f"{server.pages}/analyst/{source.survey.name}"
        console.print(f"watch the answers come in: {page}", soft_wrap=True)
        plan = surveys.resolve(source.survey)
        sent = _collect(pool, source, server.address, plan, seed, console)
        pool.terminate()
        parsed = hearsay.plans.plan.parse(plan)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", UserWarning)
            results = _ask(source, parsed, server.address)
        show_device(sent[0], parsed, console)
        show_devices(sent, parsed, console)
        show(results, console)
        for each in told:
            console.print(headed(f"warning: {each.message}", style="yellow"))
        titles = {name: each.title for name, each in parsed.attributes.items()}
        draw(results, source.title, plot, titles)
        covered = sum(result.covered for result in results)
        console.print(
            f"{covered} of {len(results)} intervals cover the truth; at 95%, "
            f"{len(results) / 20:.1f} are expected to miss it.\n"
            f"{time.monotonic() - begin:.0f} s in all. The plot is in {plot}.\n",
            soft_wrap=True,
        )
        if stay:
            _show_what_stays(source.survey, server.address, page, console)
            _wait_for_the_end()
    if not stay:
        _show_next(source.survey, data, console)
    return results


def _show_next(survey: survey_pb2.Survey, data: Path | None, console: Console) -> None:
    command = _command()
    kept = data or Path("demo-data")
    lines = ["Next, try:"]
    if data is None:
        lines.append(f"  {command} demo --stay  # again, and look at its pages")
        lines.append(f"  {command} demo --data {kept}  # again, keeping what is stored")
    lines.append(f"  {command} serve --data {kept}  # then, in another terminal:")
    lines.append(f"  {command} {_first_question(survey)}")
    if data is not None:
        lines.append(f"  {command} survey show {survey.name}")
    console.print("\n".join(lines), soft_wrap=True, highlight=False)


def _show_what_stays(survey: survey_pb2.Survey, address: str, page: str, console: Console) -> None:
    lines = (
        "The server stays until Ctrl-C. Look at",
        f"  {page}",
        "or ask it in another terminal:",
        f"  {_command()} {_first_question(survey)} --target {address}",
    )
    console.print("\n".join(lines), soft_wrap=True, highlight=False)


def _first_question(survey: survey_pb2.Survey) -> str:
    """Return the command that asks for the survey's first attribute."""
    first = survey.attributes[0]
    command = "ask words" if first.HasField("strings") else "query"
    return f"{command} {survey.name} {first.name}"


def _command() -> Path:
    command = Path(sys.executable).with_name("hearsay")
    return command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command


def _wait_for_the_end() -> None:
    """Return at Ctrl-C or SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Addresses:
    """Where a server is reached."""

    address: str
    """HOST:PORT of its calls over gRPC."""
    pages: str
    """The URL of its pages and of its calls over HTTP, without a slash at the end."""


@contextlib.contextmanager
def server_process(folder: Path) -> Iterator[Addresses]:
    """Run `hearsay serve` on free ports of loopback while the context lasts."""
    command = [sys.executable, "-m", "hearsay_server", "serve", "--data", str(folder)]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "info"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # ends at once where the process does
            if not line.startswith("listening on "):
                process.wait(_START_TIMEOUT)
                log.seek(0)
                raise ServerFailed(f"the server did not start: {log.read().strip()}")
            yield Addresses(line.removeprefix("listening on ").strip(), _pages(log))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_START_TIMEOUT)
            if process.stdout is not None:
                process.stdout.close()


def _pages(log: TextIO) -> str:
    """Return the URL of the HTTP door, whose port the log of a server that listens names."""
    log.seek(0)
    port = re.search(r"HTTP on port (\d+)", log.read())
    assert port is not None, "a server with --http logs its port before it listens"
    return f"http://127.0.0.1:{port[1]}"


def _collect(
    pool: Pool, source: Source, address: str, plan: bytes, seed: int | None, console: Console
) -> list[Sent]:
    """Let every respondent's device send; return what left the devices, at least one batch."""
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
    sent: list[Sent] = []
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("devices", total=len(respondents))
        for every in deliver(pool, address, plan, respondents, seed):
            sent += filter(None, every)
            progress.advance(task, len(every))
    if not sent:
        raise InvalidInput("nobody had an answer to an attribute that was drawn for them")
    return sent


def _ask(source: Source, plan: hearsay.plans.plan.Plan, address: str) -> list[Comparison]:
    results = []
    with Analyst(address, timeout=_ANSWER_TIMEOUT) as analyst:
        for name in (*plan.attributes, *plan.views):
            domain = plan.asked(name).domain
            given = _given(source, plan, name)
            results += _ASK[domain](analyst, plan.survey, name, domain, given)
    return results


def _ask_values(
    analyst: Analyst, survey: str, name: str, domain: Domain | Grid, given: Sequence[str]
) -> list[Comparison]:
    frame = analyst.estimate(survey, name).to_frame()
    return _compared(name, frame, lambda label: given.count(label) / len(given))


def _ask_mean(
    analyst: Analyst, survey: str, name: str, domain: Numeric, given: Sequence[float]
) -> list[Comparison]:
    frame = analyst.estimate(survey, name).to_frame()
    mean = float(np.clip(np.array(given, dtype=float), domain.low, domain.high).mean())
    return _compared(name, frame, lambda _: mean)


def _ask_items(
    analyst: Analyst, survey: str, name: str, domain: SetOf, given: Sequence[Collection[str]]
) -> list[Comparison]:
    frame = analyst.estimate(survey, name).to_frame()
    return _compared(name, frame, lambda label: _share_of_item(domain, given, label))


def _ask_words(
    analyst: Analyst, survey: str, name: str, domain: Strings, given: Sequence[str]
) -> list[Comparison]:
    """Ask for the shares of the words that the survey lists, or else for the frequent words."""
    ask = analyst.frequencies_of if domain.candidates else analyst.heavy_hitters
    words = list(map(domain.encode, given))
    return _compared(
        name, ask(survey, name).to_frame(), lambda label: words.count(label) / len(words)
    )


def _ask_ratings(
    analyst: Analyst, survey: str, name: str, domain: Ratings, given: Sequence[Mapping[str, float]]
) -> list[Comparison]:
    frame = analyst.estimate(survey, name).to_frame()
    return sorted(_rated(name, domain, given, frame), key=lambda each: each.attribute == name)


def _compared(name: str, frame: pd.DataFrame, truth: Callable[[str], float]) -> list[Comparison]:
    return [
        Comparison(
            attribute=name,
            label=str(label),
            estimate=row["estimate"],
            standard_error=row["standard_error"],
            low=row["low"],
            high=row["high"],
            truth=truth(str(label)),
        )
        for label, row in frame.iterrows()
    ]


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
    domain: Kind = plan.attributes[attribute].domain
    place: int = domain.encode(answer)
    return domain.labels[place]


def _ask_ranges(
    analyst: Analyst, survey: str, name: str, domain: Binned, given: Sequence[Any]
) -> list[Comparison]:
    """Ask for the shares of as many ranges as the reports can show; of two where they can't any."""
    frame = analyst.distribution(survey, name, quantiles=()).to_frame()
    if frame.empty:
        frame = analyst.distribution(survey, name, bins=2, quantiles=()).to_frame()
    counts = np.bincount([domain.encode(answer) for answer in given], minlength=domain.count)
    left, right = (frame.index.get_level_values(level).tolist() for level in ("left", "right"))
    numbers = frame[["estimate", "standard_error", "low", "high"]].to_dict("records")
    return [
        Comparison(
            attribute=name,
            label=label,
            truth=float(domain.points.overlaps(*ends) @ counts / len(given)),
            **row,  # type: ignore[arg-type]
        )
        for label, *ends, row in zip(cells.ranges(left, right), left, right, numbers, strict=True)
    ]


def _share_of_item(domain: SetOf, given: Sequence[Collection[str]], item: str) -> float:
    # Of a set that is too large as many items count as may, drawn at random.
    return sum(min(1.0, domain.most / len(s)) for s in given if item in s) / len(given)


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


_ASK: ByKind[Callable[[Analyst, str, str, Any, list[Any]], list[Comparison]]] = ByKind(
    category=_ask_values,
    number=_ask_mean,
    bins=_ask_ranges,
    set=_ask_items,
    ratings=_ask_ratings,
    words=_ask_words,
    grid=_ask_values,
)
"""Ask about a kind, and compare what is estimated with the answers that were given."""
