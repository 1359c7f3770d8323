"""One training for its operator: how far it is, and why nobody comes."""

from starlette.responses import Response

from hearsay.federated.parsing import parse
from hearsay.v1 import admin_pb2
from hearsay_server.pages import words
from hearsay_server.pages.page import OPERATORS, Page
from hearsay_server.pages.visit import Visit
from hearsay_server.trainings.progress import refused, state, why

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
            {"reason": reason, "count": words.count(count)}
            for reason, count in refused(found.visits)
        ],
        why=why(found, declared.min_updates),
        rounds=[_row(each) for each in reversed(found.rounds)],
        skip=skip,
    )


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
