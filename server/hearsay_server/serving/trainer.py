"""The Trainer service: devices fetch trainings, rounds and models, and submit updates."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import grpc

from hearsay.federated import encoding
from hearsay.federated.calls import PART
from hearsay.federated.declaration import Training
from hearsay.v1 import collector_pb2, trainer_pb2, trainer_pb2_grpc
from hearsay_server.at_rest import KeyLost
from hearsay_server.clock import Clock, system
from hearsay_server.limits import Rates, TooMany
from hearsay_server.serving import auth
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.status import MENDED, Ended, shortened
from hearsay_server.serving.visits import Visits
from hearsay_server.storage import rounds, trainings, updates
from hearsay_server.storage.database import Database
from hearsay_server.storage.trainings import NoTraining
from hearsay_server.storage.updates import ID_BYTES, Outcome, Place, refused
from hearsay_server.storage.writer import Writer
from ldp import InvalidInput
from ldp.errors import StorageFailed

_log = logging.getLogger("hearsay.server")

_Status = collector_pb2.Result
_COUNTED_AS = {
    _Status.STORED: "stored",
    _Status.DUPLICATE: "duplicate",
    _Status.REFUSED: "refused",
    _Status.RETRY: "retry",
}

_WAIT_MS = 1000
"""Milliseconds after which a device asks again whether a round is open."""


class Trainer(trainer_pb2_grpc.TrainerServicer):
    """The Trainer service, for devices."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        metrics: Metrics,
        rates: Rates | None = None,
        clock: Clock = system,
        *,
        counted: Callable[[], None] = lambda: None,
        visits: Visits | None = None,
    ) -> None:
        """Serve; `counted` is called after each update that counts, `visits` are counted in."""
        self._database = database
        self._writer = writer
        self._metrics = metrics
        self._rates = rates
        self._clock = clock
        self._counted = counted
        self._visits = visits or Visits()

    async def GetTraining(  # noqa: N802
        self, request: trainer_pb2.GetTrainingRequest, context: object
    ) -> trainer_pb2.GetTrainingResponse:
        found = await asyncio.to_thread(trainings.declared, self._database, request.training)
        if found is None:
            raise no_training(request.training)
        return trainer_pb2.GetTrainingResponse(training=found)

    async def GetRound(  # noqa: N802
        self, request: trainer_pb2.GetRoundRequest, context: object
    ) -> trainer_pb2.GetRoundResponse:
        found = await asyncio.to_thread(rounds.newest, self._database, request.training)
        if found is None:
            raise no_training(request.training)
        now = self._clock().timestamp()
        self._visits.asked(request.training, found.round, int(now))
        answer = trainer_pb2.GetRoundResponse(
            round=found.round, model=found.result or found.model, server_time=int(now)
        )
        if found.of_training != "running":
            answer.state = trainer_pb2.GetRoundResponse.ENDED
        elif found.state == "open" and now < found.deadline:
            answer.state = trainer_pb2.GetRoundResponse.OPEN
            answer.deadline = found.deadline
        else:
            answer.state = trainer_pb2.GetRoundResponse.WAIT
            answer.retry_after_ms = _WAIT_MS
        return answer

    async def GetModel(  # noqa: N802
        self, request: trainer_pb2.GetModelRequest, context: object
    ) -> trainer_pb2.GetModelResponse:
        asked = (request.training, request.model, request.offset)
        read = partial(trainings.model_part, self._database, *asked)
        try:
            data, size = await asyncio.to_thread(read)
        except NoTraining:
            raise no_training(request.training) from None
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.NOT_FOUND, str(error)) from None
        return trainer_pb2.GetModelResponse(data=data, size=size)

    async def SubmitUpdate(  # noqa: N802
        self, request: trainer_pb2.SubmitUpdateRequest, context: object
    ) -> trainer_pb2.SubmitUpdateResponse:
        caller = auth.caller()
        try:
            self._check_rate(caller)
            outcome = await self._take(request, caller)
        except (Ended, TooMany):
            raise
        except Exception as error:
            # Nothing was acknowledged, so the device will come again with the same update.
            _log.exception("an update could not be stored")
            detail = "the update could not be stored"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error
        if outcome.status != _Status.RETRY or outcome.detail:  # not for a part that was taken
            self._metrics.updates.labels(_COUNTED_AS[outcome.status]).inc()
        if outcome.refusal:
            self._visits.refused(request.training, outcome.refusal)
            self._metrics.updates_refused.labels(trainer_pb2.Refusal.Name(outcome.refusal)).inc()
        return trainer_pb2.SubmitUpdateResponse(
            status=outcome.status,
            refusal=outcome.refusal,
            detail=shortened(outcome.detail),
            next=outcome.next,
        )

    async def _take(self, part: updates.Part, caller: str) -> Outcome:
        """Store a part, and count the update where it is whole and good."""
        if len(part.id) != ID_BYTES:
            detail = f"an update's id is {ID_BYTES} bytes, got {len(part.id)}"
            return refused(trainer_pb2.BAD_UPDATE_ID, detail)
        place = await asyncio.to_thread(updates.look, self._database, part, self._clock())
        if isinstance(place, Outcome):
            return place
        if (wrong := _wrong_size(part, place.training)) is not None:
            return wrong
        if part.offset == 0 and len(part.data) == part.size:
            return await self._finish(part, place, part.data)
        stored = place.received
        if stored < part.size:
            # Between commits of reports, on the thread that writes them.
            taken = await self._writer.write(updates.add_part, part, caller, self._clock())
            stored = taken.next
            if taken.status != _Status.RETRY or stored < part.size:
                return taken
        asked = (self._database, part.training, part.round, part.id)
        try:
            payload = await asyncio.to_thread(rounds.payload, *asked)
        except KeyLost:  # the round goes on where the key is found
            raise
        except StorageFailed:  # its round may be over since
            payload = b""
        return await self._finish(part, place, payload)

    async def _finish(self, part: updates.Part, place: Place, payload: bytes) -> Outcome:
        """Check an update of which all bytes have come, and count it."""
        if len(payload) != part.size:  # its round closed since, and its parts are gone
            return await self._writer.write(updates.count, part, self._clock())
        try:
            await asyncio.to_thread(encoding.check, place.training, payload)
        except encoding.UpdateRefused as error:
            if place.known is not None or len(part.data) < part.size:
                await self._writer.write(updates.forget, part)
            return refused(error.refusal, str(error))
        outcome = await self._writer.write(updates.count, part, self._clock())
        if outcome.status == _Status.STORED:
            self._counted()
        return outcome

    def _check_rate(self, caller: str) -> None:
        if self._rates is None:
            return
        wait = self._rates.take(caller, 1, time.monotonic())
        if wait:
            detail = f"a caller may send {self._rates.per_second:g} batches or parts a second"
            raise TooMany(detail, "rate", wait)


def _wrong_size(part: updates.Part, training: Training) -> Outcome | None:
    """Return the refusal of a part that no update of a training has; None for others."""
    size = encoding.size(training)
    if part.size != size:
        detail = f"an update of {training.name!r} has {size:,} bytes, got {part.size:,}"
        return refused(trainer_pb2.BAD_LENGTH, detail)
    if len(part.data) > PART or part.offset + len(part.data) > size:
        detail = (
            f"a part has at most {PART:,} bytes and ends by byte {size:,}, got "
            f"{len(part.data):,} from byte {part.offset:,} on"
        )
        return refused(trainer_pb2.BAD_LENGTH, detail)
    if 0 < len(part.data) < PART and part.offset + len(part.data) < size:
        detail = f"each part but the last has {PART:,} bytes, got {len(part.data):,}"
        return refused(trainer_pb2.BAD_LENGTH, detail)
    return None


def no_training(name: str) -> Ended:
    """Return the end of a call that names an unknown training."""
    return Ended(grpc.StatusCode.NOT_FOUND, f"there is no training {name!r} here")
