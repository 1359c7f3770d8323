"""The calls of a Participant to the Trainer service, and what is refused of its answers."""

import hashlib
import time
from collections.abc import Callable

from google.protobuf.message import Message

from hearsay.federated import models
from hearsay.recording.trainings import Update
from hearsay.sending.transport import Answer, Transport
from hearsay.trouble import Reason, Trouble
from hearsay.v1 import collector_pb2, trainer_pb2
from ldp import InvalidInput

PART = 1 << 20
"""Bytes of the largest part of a model or an update."""

_LEAST_PART = 1 << 12
"""Bytes of the smallest part of a model but its last: a server that drips could go on for ever."""


class TrainerCalls:
    """The Trainer service of a client's server; the connection is made at the first call.

    Each call raises `Unreachable` where no answer comes, and `Trouble` where the server refuses, or
    answers what no server of ours does.
    """

    def __init__(self, connect: Callable[[], Transport], training: str, timeout: float) -> None:
        """`timeout` is for one call, in seconds."""
        self._connect = connect
        self._training = training
        self._timeout = timeout
        self._transport: Transport | None = None
        self._partial: tuple[bytes, bytearray] = b"", bytearray()
        self._is_paused = self._is_talking = False

    def training(self) -> bytes:
        """Return the training's bytes as the server has them."""
        request = trainer_pb2.GetTrainingRequest(training=self._training)
        answer = self._call("GetTraining", request, trainer_pb2.GetTrainingResponse)
        return answer.training

    def round(self) -> trainer_pb2.GetRoundResponse:
        """Return the round that is open, or when to ask again."""
        request = trainer_pb2.GetRoundRequest(training=self._training)
        return self._call("GetRound", request, trainer_pb2.GetRoundResponse)

    def model(self, name: bytes, dimension: int, go_on: Callable[[], None]) -> bytes:
        """Return the file of the model with this SHA-256, which has so many parameters.

        What came before a failure is kept in memory, and the next call goes on from there. `go_on`
        is called before each part, and raises where the rest is not wanted.
        """
        if self._partial[0] != name:
            self._partial = name, bytearray()
        data = self._partial[1]
        most, size = models.largest(dimension), -1
        while size < 0 or len(data) < size:
            go_on()
            request = trainer_pb2.GetModelRequest(
                training=self._training, model=name, offset=len(data)
            )
            answer = self._call("GetModel", request, trainer_pb2.GetModelResponse)
            if size < 0:
                size = answer.size
            rest = size - len(data)
            if answer.size != size or not 4 * dimension < size <= most or rest < 0:
                self._refuse_model(
                    f"a file of {answer.size} bytes for a model of {dimension} parameters"
                )
            if not min(rest, _LEAST_PART) <= len(answer.data) <= min(rest, PART):
                self._refuse_model(f"a part of {len(answer.data)} bytes, of {rest} that are left")
            data += answer.data
        if hashlib.sha256(data).digest() != name:
            self._refuse_model("bytes with another SHA-256")
        self._partial = b"", bytearray()
        return bytes(data)

    def submit(
        self, update: Update, revision: bytes, go_on: Callable[[], None]
    ) -> trainer_pb2.SubmitUpdateResponse | None:
        """Send an update in parts; return the server's final answer, None where it has none yet.

        `go_on` is called before each part, and raises where no more is to be sent.
        """
        size, offset = len(update.payload), 0
        for _ in range(2 * (size // PART + 2)):  # a server that lost parts may ask for them again
            go_on()
            request = trainer_pb2.SubmitUpdateRequest(
                id=update.id,
                training=self._training,
                revision=revision,
                round=update.round,
                model=update.model,
                size=size,
                offset=offset,
                data=update.payload[offset : offset + PART],
            )
            answer = self._call("SubmitUpdate", request, trainer_pb2.SubmitUpdateResponse)
            if answer.status in (
                collector_pb2.Result.STORED,
                collector_pb2.Result.DUPLICATE,
                collector_pb2.Result.REFUSED,
            ):
                return answer
            if answer.next == offset or answer.next >= size:
                return None
            offset = answer.next
        return None

    def pause(self, deadline: float) -> None:
        """End the call under way, at the latest at `deadline` of the monotonic clock, and keep
        others from beginning until `resume`."""
        self._is_paused = True
        while self._is_talking and time.monotonic() < deadline:
            if self._transport is not None:
                self._transport.interrupt()
            time.sleep(0.002)

    def resume(self) -> None:
        """Let calls begin again."""
        self._is_paused = False

    def after_fork(self) -> None:
        """Drop the parent's call, in a forked child; the parent had paused."""
        if self._transport is not None:
            self._transport.after_fork(usable=not self._is_talking)
        self._is_paused = self._is_talking = False

    def _call(self, name: str, request: Message, kind: type[Answer]) -> Answer:
        if self._transport is None:
            self._transport = self._connect()
        while True:
            self._is_talking = True
            try:
                if not self._is_paused:
                    return self._transport.call(f"Trainer/{name}", request, kind, self._timeout)
            except InvalidInput as error:  # there is no such training, say
                raise Trouble(Reason.SERVER_REFUSED, str(error)) from None
            finally:
                self._is_talking = False
            time.sleep(0.01)

    def _refuse_model(self, what: str) -> None:
        self._partial = b"", bytearray()
        raise Trouble(Reason.ROUND_REFUSED, f"the server sent {what} as the round's model")
