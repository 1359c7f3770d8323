"""One training for its operator: how far it is, and why nobody comes."""

from starlette.responses import Response

from hearsay.federated.parsing import parse
from hearsay.v1 import admin_pb2
from hearsay_server.pages import words
from hearsay_server.pages.page import OPERATORS, Page
from hearsay_server.pages.visit import Visit

_Round = admin_pb2.TrainingRound
_ROUNDS = 50
"""Newest rounds that the page shows."""


async def _training(visit: Visit) -> Response:
    name = visit.path["training"]
    found = await visit.call("Admin/ShowTraining", admin_pb2.ShowTrainingRequest(training=name))
    skip = max(0, found.status.round - _ROUNDS)
    if skip:
        newest_alone = admin_pb2.ShowTrainingRequest(training=name, after=skip)
        found = await visit.call("Admin/ShowTraining", newest_alone)
    declared = parse(found.training)
    newest = found.rounds[-1] if found.rounds else None
    now = visit.inside.clock().timestamp()
    return visit.page(
        "operator/training.html",
        found=found.status,
        state=state(found.status),
        declared=declared,
        newest=newest,
        newest_state=_Round.State.Name(newest.state).lower() if newest else "",
        left=None if newest is None else newest.deadline - now,
        visits=found.visits,
        refused=[
            {"reason": reason.lower().replace("_", " "), "count": words.count(count)}
            for reason, count in sorted(found.visits.refused.items())
        ],
        why=why(found, declared.min_updates),
        rounds=[_row(each) for each in reversed(found.rounds)],
        skip=skip,
    )


def state(status: admin_pb2.TrainingStatus) -> str:
    """Return a training's state in a word."""
    return admin_pb2.TrainingStatus.State.Name(status.state).lower()


def why(found: admin_pb2.ShowTrainingResponse, needed: int) -> str:
    """Say what keeps the newest round from its updates, as far as this server can know it."""
    status, newest = found.status, found.rounds[-1] if found.rounds else None
    if status.trouble:
        return f"The newest round could not be aggregated: {status.trouble}."
    if status.state != admin_pb2.TrainingStatus.RUNNING or newest is None:
        return "The training takes no more updates."
    if newest.state != _Round.OPEN:
        return "The newest round takes no more updates: its model is being made."
    if newest.updates >= needed:
        return "Enough updates have come for this round to make a model."
    if not found.visits.asked:
        return (
            "No device has asked this server for this round since the server started. See that an "
            "app that people use names this training, and that its users consent."
        )
    if found.visits.refused:
        return "Devices send updates, and some are refused: the table says why."
    if not newest.updates:
        return (
            "Devices ask for the round and send no update: they may not be drawn for it, or have "
            "too little data or budget left. Only the devices know: `hearsay device show` says it "
            "on each."
        )
    return "Updates come, and there are not enough of them yet."


def _row(each: admin_pb2.TrainingRound) -> dict[str, object]:
    return {
        "round": each.round,
        "state": _Round.State.Name(each.state).lower(),
        "updates": words.count(each.updates),
        "size": words.size(each.update_bytes),
        "opened": words.moment(each.opened),
        "closed": words.moment(each.closed) if each.closed else words.NONE,
    }


PAGES = (Page("/operator/trainings/{training}", OPERATORS, _training),)
