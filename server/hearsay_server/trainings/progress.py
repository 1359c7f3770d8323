"""How far a training is, and why nobody comes, in words."""

from hearsay.v1 import admin_pb2

_Round = admin_pb2.TrainingRound


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
        return "Devices send updates, and some are refused, for the reasons below."
    if not newest.updates:
        return (
            "Devices ask for the round and send no update: they may not be drawn for it, or have "
            "too little data or budget left. Only the devices know: `hearsay device show` says it "
            "on each."
        )
    return "Updates come, and there are not enough of them yet."


def refused(visits: admin_pb2.TrainingVisits) -> list[tuple[str, int]]:
    """Return why updates were refused, and how often each."""
    found = sorted(visits.refused.items())
    return [(reason.lower().replace("_", " "), count) for reason, count in found]
