"""One training for its operator: how far it is, and why nobody comes."""

from collections.abc import Mapping

from starlette.responses import Response

from hearsay.federated.parsing import parse
from hearsay.v1 import admin_pb2
from hearsay_server.pages import words
from hearsay_server.pages.operator import figures
from hearsay_server.pages.page import OPERATORS, Page
from hearsay_server.pages.visit import Visit

_Round = admin_pb2.TrainingRound
_ROUNDS = 50
"""Newest rounds that the page shows."""

_CALLS = {
    "Trainer/GetTraining": "asked for a training's declaration",
    "Trainer/GetRound": "asked whether a round is open",
    "Trainer/GetModel": "fetched a part of a model",
    "Trainer/SubmitUpdate": "sent an update, or a part of one",
}


async def _training(visit: Visit) -> Response:
    name = visit.path["training"]
    first = admin_pb2.ShowTrainingRequest(training=name)
    found = await visit.call("Admin/ShowTraining", first)
    skip = max(0, found.status.round - _ROUNDS)
    if skip:
        request = admin_pb2.ShowTrainingRequest(training=name, after=skip)
        found = await visit.call("Admin/ShowTraining", request)
    declared = parse(found.training)
    newest = found.rounds[-1] if found.rounds else None
    metrics = visit.inside.metrics
    called = figures.calls(metrics.call_seconds, _CALLS)
    refused = figures.totals(metrics.updates_refused)
    now = visit.inside.clock().timestamp()
    return visit.page(
        "operator/training.html",
        found=found.status,
        state=state(found.status),
        declared=declared,
        newest=newest,
        newest_state=_Round.State.Name(newest.state).lower() if newest else "",
        left=None if newest is None else newest.deadline - now,
        calls=[{"what": _CALLS[each], "count": f"{n:,}"} for each, n in called.items()],
        refused=[
            {"reason": each.lower().replace("_", " "), "count": f"{n:,}"}
            for each, n in refused.items()
        ],
        why=_why(found.status, declared.min_updates, newest, called, bool(refused)),
        rounds=[_row(each) for each in reversed(found.rounds)],
        skip=skip,
    )


def state(status: admin_pb2.TrainingStatus) -> str:
    """Return a training's state in a word."""
    return admin_pb2.TrainingStatus.State.Name(status.state).lower()


def _why(
    status: admin_pb2.TrainingStatus,
    needed: int,
    newest: admin_pb2.TrainingRound | None,
    calls: Mapping[str, int],
    refused: bool,
) -> str:
    """Say what keeps a round from its updates, as far as this server can know it."""
    if status.trouble:
        return f"The newest round could not be aggregated: {status.trouble}."
    if status.state != admin_pb2.TrainingStatus.RUNNING or newest is None:
        return "The training takes no more updates."
    if newest.state != _Round.OPEN:
        return "The newest round takes no more updates: its model is being made."
    if newest.updates >= needed:
        return "Enough updates have come for this round to make a model."
    if not calls["Trainer/GetRound"]:
        return (
            "No device has asked this server for a round since it started: is the training's name "
            "in an app that people use, and does the app reach this server?"
        )
    if refused:
        return "Devices send updates, and some are refused: the table says why."
    if not calls["Trainer/SubmitUpdate"]:
        return (
            "Devices ask for rounds and send no update: they may not be drawn for this round, lack "
            "consent, data or budget, or hold an agreement with another revision. The devices "
            "alone know which, and `participant.state` of the app says it."
        )
    return "Updates come, and there are not enough of them yet."


def _row(each: admin_pb2.TrainingRound) -> dict[str, object]:
    return {
        "round": each.round,
        "state": _Round.State.Name(each.state).lower(),
        "updates": f"{each.updates:,}",
        "size": words.size(each.update_bytes),
        "opened": words.moment(each.opened),
        "closed": words.moment(each.closed) if each.closed else words.NONE,
    }


PAGES = (Page("/operator/trainings/{training}", OPERATORS, _training),)
