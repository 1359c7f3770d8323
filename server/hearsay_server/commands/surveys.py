"""`hearsay survey`: register, inspect, close and delete surveys."""

import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from rich.table import Table

import hearsay.plans.plan
from hearsay.plans.kinds import Numeric, Ratings, Strings
from hearsay.sealed.keys import fingerprint
from hearsay.v1 import admin_pb2, survey_pb2
from hearsay_server import tabular
from hearsay_server.commands import (
    connect,
    drafts,
    plotting,
    plotting_plans,
    ranging,
    upkeep,
    words,
)
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Insecure, Target, Token
from hearsay_server.commands.plotting import Plot
from hearsay_server.commands.plotting_plans import Half
from hearsay_server.printing import Console, headed, say, say_json
from hearsay_server.surveys import explain_budgets
from hearsay_server.surveys import survey as surveys
from hearsay_server.wrapping import print_wrapped
from ldp import InvalidInput

_TIMEOUT = 30.0

_SHOWN_VALUES = 12
"""Values of an attribute that are listed."""

_ANSWERS = 8
"""Lines of a list of values."""

app = typer.Typer(
    help="Register, inspect, close and delete surveys.", no_args_is_help=True, add_completion=False
)


@app.command("create")
def create_survey(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The survey, as TOML.")],
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Register a survey: resolve it into its plan and freeze that."""
    survey = surveys.from_file(file)
    with connect.connected(context, target, insecure, token) as calls:
        request = admin_pb2.CreateSurveyRequest(survey=survey)
        try:
            status = calls.call("Admin/CreateSurvey", request, admin_pb2.SurveyStatus, _TIMEOUT)
        except InvalidInput as error:
            raise InvalidInput(f"{file}: {error}") from None
    console = Console()
    console.print(f"{status.survey} is registered, revision {status.revision.hex()[:12]}")
    if not survey.budget and not survey.HasField("two_servers"):  # nobody has chosen one
        for line in explain_budgets.advice(explain_budgets.of(survey)):
            print_wrapped(f"The file names no budget, so records are split. {line}", console)


@app.command("plan")
def plan_survey(
    file: Annotated[Path, typer.Argument(help="The survey, as TOML.")],
    out: Annotated[Path, typer.Option(help="Where to write the plan's bytes.")],
) -> None:
    """Resolve a survey into its plan, without a server: for an app's own tests."""
    plan = surveys.resolve(surveys.from_file(file))
    out.write_bytes(plan)
    Console().print(f"{out} has revision {hearsay.plans.plan.parse(plan).revision.hex()}")


@app.command("explain")
def explain_survey(
    file: Annotated[Path, typer.Argument(help="The survey, as TOML.")],
    users: Annotated[int, typer.Option(help="How many users to predict the errors for.")] = 10_000,
    periods: Annotated[
        int | None,
        typer.Option(help="How many periods a person answers in; a year of them if not given."),
    ] = None,
    target: Annotated[
        str, typer.Option("--for", help="Propose weights to explain this attribute by the others.")
    ] = "",
    public: Annotated[
        Path | None,
        typer.Option("--from", help="PUBLIC data for --for: a CSV file with the attributes."),
    ] = None,
    plot: Plot = None,
) -> None:
    """Explain a survey before it is registered: protection, cost and errors.

    With --for and --from: propose weights. Never use private data for that.
    """
    from hearsay_server.commands import explained
    from hearsay_server.surveys import explain, explain_shares, weights

    survey = surveys.from_file(file)
    if plot is not None:
        plotting.check(plot)
        if public is not None or survey.HasField("two_servers"):
            raise InvalidInput(
                "--plot draws the intervals of a survey's questions: leave out --for and --from, "
                "and draw no survey with [two_servers]"
            )
    if bool(target) != (public is not None):
        raise InvalidInput(
            "--for names the attribute of interest, and --from a file of PUBLIC data"
        )
    if public is None and survey.HasField("two_servers"):
        if users < 1:
            raise InvalidInput(f"users must be at least 1, got {users}")
        try:
            plan = hearsay.plans.plan.parse(surveys.resolve(survey))
        except InvalidInput as error:
            raise InvalidInput(f"{file}: {error}") from None
        explained.show_split(plan, users, Console())
        return
    if public is None:
        told = explain.explain(survey, str(file), users, periods)
        explained.show(told, Console())
        if plot is not None:
            title = f"{told.plan.title or told.plan.survey}, with {users:,} users at each level"
            plotting_plans.halves(
                title,
                [
                    Half(
                        told.plan.questions[row.attribute].title or row.attribute,
                        row.level + (f", {row.map}" if row.map else ""),
                        explain_shares.half(told.plan.questions[row.attribute].domain, row.error),
                    )
                    for row in told.rows
                ],
                plot,
            )
        return
    Console(stderr=True).print(headed(weights.WARNING, style="bold red"))
    found = weights.propose(survey, target, public)
    explained.show_weights(found)
    say(
        textwrap.fill(
            f"At {found.level} the present weights take {found.gain:.2f} times as many people as "
            "the proposed ones to learn equally well how the attributes go with "
            f"{found.target}.",
            80,
        )
    )


@app.command("list")
def list_surveys(
    context: typer.Context,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the surveys, with their numbers of batches and records."""
    with connect.connected(context, target, insecure, token) as calls:
        request, kind = admin_pb2.ListSurveysRequest(), admin_pb2.ListSurveysResponse
        answer = calls.call("Admin/ListSurveys", request, kind, _TIMEOUT)
    if as_json:
        rows = [
            {
                "survey": s.survey,
                "title": s.title,
                "revision": s.revision.hex(),
                "batches": s.batches,
                "records": s.records,
            }
            for s in answer.surveys
        ]
        say_json(rows)
        return
    table = Table("survey", "title", "revision")
    table.add_column("batches", justify="right")
    table.add_column("records", justify="right")
    for s in answer.surveys:
        table.add_row(s.survey, s.title, s.revision.hex()[:12], f"{s.batches:,}", f"{s.records:,}")
    tabular.show(table)


@app.command("show")
def show_survey(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey's name.")],
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show what a survey asks, its mechanisms with their epsilon, and what has come in."""
    with connect.connected(context, target, insecure, token) as calls:
        request, kind = admin_pb2.ShowSurveyRequest(survey=survey), admin_pb2.ShowSurveyResponse
        answer = calls.call("Admin/ShowSurvey", request, kind, _TIMEOUT)
    plan = hearsay.plans.plan.parse(answer.plan)
    if as_json:
        document = MessageToDict(hearsay.plans.plan.message(answer.plan))
        document |= {"batches": answer.status.batches, "records": answer.status.records}
        document["page"] = MessageToDict(answer.page)
        document["reports"] = [
            {
                "attribute": each.attribute,
                "level": each.level,
                "map": each.map,
                "period": period,
                "reports": n,
            }
            for each in answer.reports
            for period, n in zip(answer.periods, each.reports, strict=True)
            if n
        ]
        say_json(document)
        return
    Console().print(headed(plan.survey, f"  {plan.title}"))
    Console().print(f"revision {plan.revision.hex()}")
    Console().print(f"period   {plan.period or 'once: one record per user, ever'}")
    if answer.periods:
        ends = dict.fromkeys((answer.periods[0], answer.periods[-1]))
        Console().print(f"reports  of {len(answer.periods)} periods, {' to '.join(ends)}")
    Console().print(f"page     {_page_in_words(answer.page)}")
    Console().print(f"levels   {surveys.levels_in_words(plan)}", soft_wrap=True)
    if plan.sealing is not None:
        found, least = fingerprint(plan.sealing), plan.sealing.least
        sealed = f"sealed   to keys with the fingerprint {found}; {least:,} mixed at least"
        Console().print(sealed, soft_wrap=True)
    if plan.attested:
        kinds = ", ".join(plan.attested.measurements)
        Console().print(f"attested records leave only for evidence of {kinds}", soft_wrap=True)
    if two := plan.two_servers:
        Console().print(
            f"split    with a helper{f' ({two.helper})' if two.helper else ''}; "
            f"{two.least:,} summed at least; delta {two.delta:g}",
            soft_wrap=True,
        )
        Console().print(f"         its key {two.helper_key.hex()}", soft_wrap=True)
    if plan.panels:
        Console().print(
            f"panels   {plan.panels}, one of which is sent with each report of a person"
        )
    for each in plan.properties.declared:
        listed = f"{each.name}: {', '.join(each.values)}"
        Console().print(f"property {listed}, or none, as the app says", soft_wrap=True)
    Console().print(f"records  {answer.status.records:,} in {answer.status.batches:,} batches")
    tabular.show(_questions(plan, answer.reports), lines=_ANSWERS)
    if plan.two_servers:
        return
    table = Table("level", "attribute", "domain", "mechanism")
    table.add_column("epsilon", justify="right")
    table.add_column("bytes", justify="right")
    for level in plan.levels.values():
        for name, by_map in level.by_map.items():
            for chosen, mechanism in by_map.items():
                table.add_row(
                    level.name,
                    f"{name}, {chosen}" if chosen else name,
                    str(plan.questions[name].domain),
                    mechanism.name,
                    f"{mechanism.realised_epsilon:.4f}",
                    str(mechanism.code_bytes),
                )
        whole = headed(f"{level.epsilon:.4f}")
        size = sum(max(m.code_bytes for m in each.values()) for each in level.by_map.values())
        table.add_row(level.name, headed("whole record"), "", "", whole, str(size))
        table.add_section()
    tabular.show(table)


def _page_in_words(page: survey_pb2.Page) -> str:
    """Say what everybody may see and do on a survey's page."""
    if not page.public:
        return "not public"
    shows = ["what is asked", *["results"] * page.results, *["takes answers"] * page.answers]
    return f"public: {', '.join(shows)}"


def _questions(plan: hearsay.plans.plan.Plan, reports: Iterable[admin_pb2.Reports]) -> Table:
    """List what is asked, and how many reports came in at each level, by whatever map."""
    table = Table("attribute", "title", "answers")
    levels = [] if plan.two_servers else list(plan.levels)
    for level in levels:
        table.add_column(f"reports, {level}", justify="right")
    totals: Counter[tuple[str, str]] = Counter()
    for each in reports:
        totals[each.attribute, each.level] += sum(each.reports)
    for name, attribute in {**plan.attributes, **plan.questions}.items():
        domain = attribute.domain
        values = () if isinstance(domain, Numeric | Ratings | Strings) else domain.labels
        answers = ", ".join(values[:_SHOWN_VALUES]) or str(domain)
        if len(values) > _SHOWN_VALUES:
            answers += f", ... ({len(values):,} values; all with --json)"
        counts = (f"{totals[name, level]:,}" for level in levels)
        table.add_row(name, attribute.title, answers, *counts)
    return table


app.command("init")(drafts.survey_init)
app.command("check")(drafts.survey_check)
app.command("words")(words.words_survey)
app.command("range")(ranging.survey_range)
app.command("close")(upkeep.close_survey)
app.command("delete")(upkeep.delete_survey)
