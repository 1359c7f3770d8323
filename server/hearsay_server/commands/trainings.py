"""`hearsay training`: register, inspect, export, close and delete trainings."""

import time
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live

from hearsay.federated.calls import PART
from hearsay.federated.parsing import parse
from hearsay.sending.transport import Calls
from hearsay.v1 import admin_pb2, trainer_pb2
from hearsay.v1.admin_pb2 import TrainingRound, TrainingStatus
from hearsay_server import spreadsheets, tabular
from hearsay_server.commands import connect, training_plan, training_run, training_shown
from hearsay_server.commands.confirming import Yes, confirm
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Delta, Insecure, Target, Token
from hearsay_server.commands.writing import check_new, opened_new
from hearsay_server.printing import Console, say, say_json
from hearsay_server.trainings import explain, figures
from hearsay_server.trainings.training import from_file
from hearsay_server.wrapping import print_wrapped
from ldp import InvalidInput
from ldp.errors import AnswerRefused

_TIMEOUT = 60.0
_PAUSE = 2.0
"""Seconds between two looks of `--watch`."""

Name = Annotated[str, typer.Argument(help="The training's name.")]

app = typer.Typer(
    help="Declare, plan, try, inspect and close trainings over devices.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("create")
def create_training(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The training, as TOML.")],
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Register a training with its first model, freeze it, and open its first round."""
    declared = from_file(file)
    training = declared.training
    with connect.connected(context, target, insecure, token) as calls:
        try:
            _upload(calls, training.initial, declared.model)
            request = admin_pb2.CreateTrainingRequest(training=declared.frozen)
            status = calls.call("Admin/CreateTraining", request, TrainingStatus, _TIMEOUT)
        except InvalidInput as error:
            raise InvalidInput(f"{file}: {error}") from None
    say(
        f"{status.training} is registered, revision {status.revision.hex()[:12]}; "
        f"round {status.round} of {status.rounds:,}"
    )
    print_wrapped(explain.end(training), Console())


@app.command("list")
def list_trainings(
    context: typer.Context,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the trainings, with their rounds and updates."""
    with connect.connected(context, target, insecure, token) as calls:
        kind = admin_pb2.ListTrainingsResponse
        answer = calls.call("Admin/ListTrainings", admin_pb2.ListTrainingsRequest(), kind, _TIMEOUT)
    if as_json:
        listed = [training_shown.status(each) for each in answer.trainings]
        say_json(listed)
        return
    tabular.show(training_shown.table(answer.trainings))


@app.command("show")
def show_training(
    context: typer.Context,
    training: Name,
    all_rounds: Annotated[
        bool,
        typer.Option("--all", help=f"Show all rounds, not only the last {training_shown.SHOWN}."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again every two seconds, until the end.")
    ] = False,
    delta: Delta = figures.DELTA,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a training is: its rounds, and what a person has spent by each.

    `rho` and `epsilon` are the most of a person who took part as often as the training allows.
    """
    figures.check_delta(delta)
    if watch and as_json:
        raise InvalidInput("choose one of --watch and --json")
    with connect.connected(context, target, insecure, token) as calls:
        shown = _shown(calls, training)
        if as_json:
            say_json(training_shown.document(shown, delta))
            return
        console = Console()

        def page() -> Group:
            return training_shown.page(shown, delta, all_rounds, console.width)

        if not watch:
            console.print(page())
            return
        with Live(page(), console=console, auto_refresh=False) as live:
            while shown.status.state == TrainingStatus.RUNNING:
                time.sleep(_PAUSE)
                shown = _shown(calls, training, shown)
                live.update(page(), refresh=True)


@app.command("export")
def export_training(
    context: typer.Context,
    training: Name,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the model, as safetensors.")
    ] = None,
    number: Annotated[
        int | None,
        typer.Option("--round", help="The model that this round made; 0: the first. The newest."),
    ] = None,
    history: Annotated[Path | None, typer.Option(help="Where to write the rounds, as CSV.")] = None,
    delta: Delta = figures.DELTA,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Write a training's model, and its rounds, into files that do not exist yet."""
    figures.check_delta(delta)
    if out is None and history is None:
        raise InvalidInput("give --out for the model, --history for the rounds, or both")
    check_new(out, history)
    with connect.connected(context, target, insecure, token) as calls:
        shown = _shown(calls, training)
        if out is not None:
            model = _model_of(shown, number)
            data = _download(calls, training, model)
            with opened_new(out, "xb") as written:
                written.write(data)
            first = "" if shown.status.aggregated else ", the first: no round has made another"
            say(f"{out}: model {model.hex()[:12]} of {training}{first}")
    if history is not None:
        with opened_new(history) as written:
            rows = training_shown.history(shown, delta)
            lines = (list(row.values()) for row in rows)
            spreadsheets.write(written, [training_shown.HISTORY, *lines], "\n")
        say(f"{history}: {len(shown.rounds):,} rounds of {training}")


@app.command("close")
def close_training(
    context: typer.Context,
    training: Name,
    yes: Yes = False,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """End a training for good: its open round is dropped; its models stay."""
    confirm(yes, f"Close {training} for good, and delete the updates of its open round?")
    with connect.connected(context, target, insecure, token) as calls:
        request = admin_pb2.CloseTrainingRequest(training=training)
        status = calls.call("Admin/CloseTraining", request, TrainingStatus, _TIMEOUT)
    say(f"{training} is closed after {status.aggregated:,} rounds that made a model")


@app.command("delete")
def delete_training(
    context: typer.Context,
    training: Name,
    yes: Yes = False,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Delete a training with its models and its rounds.

    Devices that took part never join another training of its name: give a new one another.
    """
    confirm(
        yes,
        f"Delete {training} and all its models, for good? Devices that took part never join "
        "another training of this name.",
    )
    with connect.connected(context, target, insecure, token) as calls:
        request = admin_pb2.DeleteTrainingRequest(training=training)
        kind = admin_pb2.DeleteTrainingResponse
        held = calls.call("Admin/DeleteTraining", request, kind, _TIMEOUT)
    say(f"{training} is deleted, with {held.rounds:,} rounds of {held.updates:,} updates")


def _upload(calls: Calls, sha256: bytes, model: bytes) -> None:
    """Send a first model in parts, from where the server has it."""
    place = 0
    while place < len(model):
        request = admin_pb2.UploadModelRequest(
            model=sha256, size=len(model), offset=place, data=model[place : place + PART]
        )
        kind = admin_pb2.UploadModelResponse
        place = calls.call("Admin/UploadModel", request, kind, _TIMEOUT).next


def _download(calls: Calls, training: str, model: bytes) -> bytes:
    """Fetch a model in parts."""
    parts = bytearray()
    while True:
        request = trainer_pb2.GetModelRequest(training=training, model=model, offset=len(parts))
        answer = calls.call("Trainer/GetModel", request, trainer_pb2.GetModelResponse, _TIMEOUT)
        parts += answer.data
        if len(parts) >= answer.size:
            break
    if sha256(parts).digest() != model:
        raise AnswerRefused(f"the server sent another model than {model.hex()[:12]}: ask another")
    return bytes(parts)


def _shown(
    calls: Calls, training: str, before: admin_pb2.ShowTrainingResponse | None = None
) -> admin_pb2.ShowTrainingResponse:
    """Return a training with all its rounds, of which those that are over are not asked again."""
    over = [] if before is None else list(before.rounds)
    final = (TrainingRound.AGGREGATED, TrainingRound.DROPPED)
    while over and over[-1].state not in final:
        over.pop()
    while True:
        after = over[-1].round if over else 0
        request = admin_pb2.ShowTrainingRequest(training=training, after=after)
        kind = admin_pb2.ShowTrainingResponse
        answer = calls.call("Admin/ShowTraining", request, kind, _TIMEOUT)
        over += answer.rounds
        if not answer.rounds:
            del answer.rounds[:]
            answer.rounds.extend(over)
            return answer


def _model_of(shown: admin_pb2.ShowTrainingResponse, number: int | None) -> bytes:
    """Return the SHA-256 of the model that a round made."""
    if number is None:
        return shown.status.model
    if number == 0:
        return parse(shown.training).initial
    for each in shown.rounds:
        if each.round == number and each.result:
            return each.result
    raise InvalidInput(
        f"round {number} of {shown.status.training!r} made no model: expected 0 for the first, or "
        "a round that hearsay training show calls aggregated"
    )


app.command("plan")(training_plan.plan_training)
app.command("explain")(training_plan.explain_training)
app.command("run")(training_run.run_training)
app.command("model")(training_run.first_model)
