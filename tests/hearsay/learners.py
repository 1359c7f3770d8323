"""Devices of a training, to be killed: `python learners.py TARGET FOLDER` forks one for each line
of its input, "NUMBER LAST", and prints its pid. It takes part up to the round LAST, and writes the
number of each round that was acknowledged to the file FOLDER/NUMBER.log.

Its step depends on the model, the device and the round alone, as its coins do: so the payload that
it seals for a round is the same in every life, and the server's models are those of every run.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hearsay import Client, Delivery, Reason
from hearsay.federated import Participant, Round
from ldp import Coins
from ldp.testing import SeededCoins

__import__("grpc")  # before the forks: it takes long

Model = dict[str, NDArray[np.float32]]

DEVICES = 3
"""The first coordinates of an update, one for each device, tell whose it is."""

QUICK = Delivery(first_wait=0.002, longest_wait=0.01, timeout=2.0)


class CoinsOfRound(Coins):
    """The same coins for one device in one round, in every life."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.begin(0)

    def begin(self, round_: int) -> None:
        self._coins = SeededCoins(1000 * round_ + self._number)

    def _bytes(self, count: int) -> bytes | memoryview:
        return self._coins._bytes(count)


def participant_of(
    number: int, target: str, folder: Path, *, consent: bool = False
) -> tuple[Client, Participant]:
    """A device's client and its part in the training."""
    coins = CoinsOfRound(number)

    def step(
        model: dict[str, NDArray[np.float32]], round_: Round
    ) -> dict[str, NDArray[np.float32]]:
        coins.begin(round_.number)
        vector = np.random.default_rng((number, round_.number)).normal(0, 0.01, model["w"].shape)
        vector[number] = 0.5
        return {"w": (0.9 * model["w"] + vector).astype(np.float32)}

    client = Client(
        target,
        "none",
        epsilon=1.0,
        ledger=folder / f"{number}.db",
        delivery=QUICK,
        coins=coins,
    )
    steps = {"killed": step}
    return client, Participant(client, "killed", steps=steps, rho=1e5, consent=consent)


def live(number: int, last: int, target: str, folder: Path) -> None:
    """Take part up to the round `last`, and wait to be killed."""
    log = os.open(folder / f"{number}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    _, participant = participant_of(number, target, folder)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        spent = participant.spending()
        if spent is None or spent.last_round < last or spent.waiting:
            progress = participant.run_once()
            if progress.reason is Reason.READY:
                os.write(log, f"{progress.round}\n".encode())
        time.sleep(0.002)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            live(*map(int, line.split()), sys.argv[1], Path(sys.argv[2]))
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
