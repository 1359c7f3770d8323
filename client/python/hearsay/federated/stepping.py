"""The app's step: from a round's model to an update, whatever the step does.

Whether an update leaves must not depend on the person's data. So a step that raises, or returns
what is no model, makes an update of zeros, which is sealed, charged and sent like any other.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hearsay.federated.declaration import LocalTraining, Training
from hearsay.federated.models import Vector, from_vector, to_vector
from hearsay.interrupts import is_from_handler
from ldp.errors import HearsayError

_log = logging.getLogger("hearsay")


class Skip(HearsayError):
    """Raised by an app's step to take no part in a round: nothing is charged, and nothing leaves.

    That it was raised is visible to the server. Raise it for reasons that do not depend on the
    person's data, such as an empty battery, and never because of them.
    """


@dataclass(frozen=True)
class Round:
    """A round of a training, as the app's step gets it."""

    training: Training
    number: int

    @property
    def local(self) -> LocalTraining:
        """What the training wants a device to do: epochs, batch size, learning rate."""
        return self.training.local


Step = Callable[[dict[str, NDArray[np.float32]], Round], Mapping[str, ArrayLike]]
"""The app's own code: takes a model (float32 arrays by name, its own to change) and the round, and
returns a model of the same names and shapes, trained on the person's data."""


class Stepper:
    """Runs a step and encodes what it makes, within a fixed time where there is one."""

    def __init__(self, seconds: float | None) -> None:
        """`seconds` is how long after its begin a step's update is there, however long it took;
        None: when it is done."""
        self._seconds = seconds
        self._late: threading.Thread | None = None

    @property
    def is_timed(self) -> bool:
        """Whether a step has a fixed time."""
        return self._seconds is not None

    def after_fork(self) -> "Stepper":
        """Return a stepper for a forked child, in which no step runs."""
        return Stepper(self._seconds)

    def payload(
        self,
        step: Step,
        model: Mapping[str, NDArray[np.float32]],
        round_: Round,
        encode: Callable[[Vector], bytes],
        blank: bytes,
    ) -> tuple[bytes, str]:
        """Return the encoded difference that a step makes to a model, and "".

        Where the step fails, returns `blank`, and how it failed, without the words of its
        exception, which may have data in them. All that depends on data is done within the fixed
        time: the step, the difference and its encoding. A step that goes on after its time fails;
        it is not ended, and the next steps fail until it ends by itself.
        Raises `Skip` where the step does, and an exception of a signal handler.
        """

        def made() -> bytes | Skip | str:
            return _made(step, model, round_, encode)

        found = made() if self._seconds is None else self._within(self._seconds, made)
        if isinstance(found, Skip):
            raise found
        if isinstance(found, bytes):
            return found, ""
        _log.error("an update of zeros is sent for round %d: %s", round_.number, found)
        return blank, found

    def _within(self, seconds: float, made: Callable[[], bytes | Skip | str]) -> bytes | Skip | str:
        end = time.monotonic() + seconds
        results: list[bytes | Skip | str] = []
        if self._late is None or not self._late.is_alive():
            self._late = threading.Thread(
                target=lambda: results.append(made()), name="hearsay-step", daemon=True
            )
            self._late.start()
        while (left := end - time.monotonic()) > 0:
            time.sleep(left)
        return results[0] if results else f"the step took longer than {seconds:g} seconds"


def _made(
    step: Step,
    model: Mapping[str, NDArray[np.float32]],
    round_: Round,
    encode: Callable[[Vector], bytes],
) -> bytes | Skip | str:
    """Return what a step makes, encoded; or the `Skip` that it raised, or how it failed."""
    before = to_vector(model)
    try:
        after = step(from_vector(before, model), round_)
    except Skip as skip:
        return skip
    except Exception as error:
        if is_from_handler(error):
            raise
        return f"the step raised {type(error).__name__}"
    try:
        return encode(_difference(before, model, after))
    except Exception as error:
        if is_from_handler(error):
            raise
        return f"the step returned no model: {_words(error)}"


def _difference(
    before: Vector,
    model: Mapping[str, NDArray[np.float32]],
    after: Mapping[str, ArrayLike],
) -> Vector:
    """Return what was added to a model; raise `ValueError` where `after` is not like it."""
    if not isinstance(after, Mapping) or after.keys() != model.keys():
        raise _NoModel("its names are not those of the round's model")
    arrays = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for name, tensor in model.items():
            arrays[name] = np.asarray(after[name]).astype(np.float32)
            if arrays[name].shape != tensor.shape:
                raise _NoModel(f"{name!r} has another shape than in the round's model")
        change = (to_vector(arrays).astype(np.float64) - before).astype(np.float32)
    if not np.isfinite(change).all():
        raise _NoModel("it has numbers that are not finite")
    return change


class _NoModel(HearsayError):
    """A step returned no model like the round's; the message says why, without any data."""


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, _NoModel) else type(error).__name__
