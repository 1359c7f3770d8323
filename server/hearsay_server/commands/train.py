"""`hearsay train`: from a running server to a saved model with its account."""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.asking.texts import selected
from hearsay.plans.kinds import ByKind
from hearsay.plans.plan import Plan
from hearsay_server.commands import connect
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Insecure, Token
from hearsay_server.commands.selecting import First, Last, Level, Period
from hearsay_server.printing import Console, say, say_json
from ldp.errors import InvalidInput, needs

if TYPE_CHECKING:
    from dpsgd.estimators import PrivateClassifier, PrivateRegressor
    from dpsgd.estimators import Progress as Trained


def train(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey's name.")],
    target: Annotated[str, typer.Option(help="The attribute to predict.")],
    features: Annotated[
        str, typer.Option(help="The attributes to predict it from, with commas between.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="Where to save the model; by default SURVEY-TARGET.pt.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the model of an earlier training.")
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Of the training's own noise; leave it out for the reports alone."),
    ] = None,
    delta: Annotated[float, typer.Option(help="The delta of all that the account states.")] = 1e-5,
    steps: Annotated[
        int, typer.Option(min=1, help="The steps of the training of a classifier.")
    ] = 200,
    hidden: Annotated[
        str, typer.Option(help="Widths of hidden layers, such as 16,16; none: a linear model.")
    ] = "",
    level: Level = None,
    period: Period = None,
    first: First = "",
    last: Last = "",
    server: Annotated[
        str, typer.Option(help="The server, as HOST:PORT, or https://HOST over HTTP.")
    ] = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on the randomised records, by their channels; save it with its account.

    An attribute of values is classified, a number is regressed on. Records must report the target
    and the features together, as with budget = "split". Where the target is a number, numbers among
    the features are best reported by piecewise: mean_table and one bit may tell nothing of squares.
    The guarantees of several trainings on the same records add up.

    \b
      hearsay train redbook --target affair --features age,rating
      hearsay train redbook --target age --features affair,rating --epsilon 1
    """
    with needs("train", "train"):
        from dpsgd.estimators import save
        from dpsgd.reports.rows import Rows

    place = output or Path(f"{survey}-{target}.pt")
    if not place.parent.is_dir():
        raise InvalidInput(f"there is no folder {place.parent} to save the model in")
    if place.is_dir() or not os.access(place.parent, os.W_OK):
        raise InvalidInput(f"no file can be written at {str(place)!r}: --output takes its name")
    if place.exists() and not force:
        raise InvalidInput(
            f"{place} is there: give --force to replace it, or another --output; what several "
            "trainings tell of the same records adds up"
        )
    asked = [name.strip() for name in features.split(",")]
    selection = selected(level, period, first, last)
    with Analyst(server, tls=connect.tls(context), token=token, insecure=insecure) as analyst:
        plan = hearsay.plans.plan.parse(analyst.show_survey(survey).plan)
        model = _model(plan, target, asked, epsilon, delta, steps, hidden)
        rows = Rows.of(analyst.rows(survey, **selection), [target, *asked])
    console = Console(stderr=True)
    with Progress(
        TextColumn("training"),
        BarColumn(),
        TextColumn("step {task.completed} of {task.total}, {task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as shown:
        task = shown.add_task("", total=None)

        def progress(at: "Trained") -> None:
            spent = "no noise" if math.isinf(at.epsilon) else f"epsilon {at.epsilon:.3g}"
            shown.update(task, completed=at.step, total=at.steps, description=spent)

        model.on_progress = progress
        model.fit(rows, target, features=asked)
    save(model, place)
    if as_json:
        account = asdict(model.account_)
        relation = model.account_.relation
        document = {
            "survey": survey,
            "target": target,
            "features": asked,
            "rows": rows.n,
            "saved": str(place),
            "account": _finite(account | {"relation": relation and relation.value}),
        }
        say_json(document)
        return
    say(f"{type(model).__name__} of {target} by {', '.join(asked)}: {rows.n:,} rows")
    say(str(model.account_))
    if plan.period:
        say("  a person has a row in each period, and their guarantees add up")
    say(f"saved for dpsgd.estimators.load: {place}")


def _model(
    plan: Plan,
    target: str,
    features: Sequence[str],
    epsilon: float | None,
    delta: float,
    steps: int,
    hidden: str,
) -> "PrivateClassifier | PrivateRegressor":
    """Return a model that knows from the plan which values and bounds are possible.

    Raises `InvalidInput` for attributes that the plan lacks, or that are neither one value nor a
    number, and for what is no list of widths.
    """
    from dpsgd.estimators import PrivateClassifier, PrivateRegressor

    if len({target, *features}) <= len(features):
        raise InvalidInput(
            f"name the target and each feature once, got {target!r} and {', '.join(features)}"
        )
    known: dict[str, dict[str, Any]] = {"categories": {}, "feature_bounds": {}}
    for name in (target, *features):
        if name not in plan.attributes:
            raise InvalidInput(
                f"{plan.survey!r} has no attribute {name!r}; its attributes are "
                f"{', '.join(plan.attributes)}"
            )
        domain = plan.attributes[name].domain
        option = _OPTIONS[domain] if name in plan.questions else ""
        if not option:
            raise InvalidInput(
                f"{name!r} cannot be trained on: it must be one of some values, or a number "
                "without bins, and in no view"
            )
        known[option][name] = domain.agreed
    classes = known["categories"].pop(target, None)
    target_bounds = known["feature_bounds"].pop(target, None)
    shared: dict[str, Any] = {"epsilon": epsilon, "delta": delta, **known}
    if classes is not None:
        widths = _widths(hidden)
        return PrivateClassifier(classes=classes, steps=steps, hidden=widths, **shared)
    if hidden:
        raise InvalidInput(f"--hidden is of classifiers, and {target!r} is a number")
    return PrivateRegressor(target_bounds=target_bounds, **shared)


_OPTIONS = ByKind.otherwise("", category="categories", number="feature_bounds")
"""The option of a model that says which answers are possible, "" where it takes none."""


def _widths(text: str) -> tuple[int, ...]:
    widths = text.split(",") if text else []
    if not all(width.strip().isdecimal() and int(width) for width in widths):
        raise InvalidInput(f"--hidden must be widths such as 16,16, got {text!r}")
    return tuple(map(int, widths))


def _finite(value: Any) -> Any:
    """Return a document for JSON, in which what is infinite is null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and math.isinf(value) else value
