"""Train a model on records that never leave twenty devices: `python examples/federated_digits.py`.

One real server process, and a process for each device, with records of its own (scikit-learn's
digits, dealt out), a ledger of its own and code of its own: `step`. The devices reach the server
over gRPC, or over HTTP with `--http`. The operator declares the training in `TRAINING`, and the
server adds noise that is correlated over rounds to the sum of each round (`[training.central]`).

The guarantee: all models of the training together are rho-zCDP for one person's updates against
zeros in their place, if the server is honest. The server itself sees each update, which is not
protected from it. Twenty people are few: noise with which they learn costs an epsilon of ten. The
same noise in the mean of 2,000 people has a hundred times the noise multiplier, which costs a
ten-thousandth of the rho.
"""

import argparse
import contextlib
import multiprocessing
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hearsay
from hearsay.federated import Participant, Participation, Round, Skip, models
from hearsay.sending.transport import open_calls
from hearsay.v1 import admin_pb2, trainer_pb2
from hearsay_server.trainings import figures
from hearsay_server.trainings.training import from_file

Model = dict[str, NDArray[np.float32]]
Records = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Images, shape (n, 64), from 0 to 1, and their digits, shape (n,)."""
Told = tuple[int, Participation | None]

DEVICES, ROUNDS = 20, 24
TESTED = 360
"""Images that no device has."""

TRAINING = """
[training]
name = "digits"
title = "Handwritten digits"
architecture = "softmax"          # the app's name for its own code: `step`
model = "first.safetensors"
rounds = {rounds}
round_seconds = 5                 # a round closes by then, or earlier, when it is full
updates_per_round = {per_round}
min_updates = {least}
participations = {participations} # of one person, and
separation = 2                    # only every second round: each device's ledger holds to both
max_update_norm = 1.0

[training.local]
epochs = 2
batch_size = 10
learning_rate = 1.0

[training.central]                # the banded Toeplitz root, with as many bands as separation
noise_multiplier = 2.0
"""


# What the app does: this runs on each device.


def device(number: int, target: str, folder: Path, barrier: Barrier, told: "Queue[Told]") -> None:
    """Be one device, until the training has ended; then tell what its ledger says."""
    with np.load(folder / f"records {number}.npz") as file:
        records = file["images"], file["digits"]
    ledger = folder / f"device {number}.db"
    hearsay.create_ledger(ledger)  # once, when the app is installed
    with hearsay.Client(target, "none", epsilon=1.0, ledger=ledger) as client:
        participant = Participant(
            client,
            "digits",
            steps={"softmax": lambda model, round_: step(model, round_, records, number)},
            rho=2.5,  # the most that the app lets the whole training spend
        )
        participant.grant()  # when the user consents
        barrier.wait()
        participant.run()
        told.put((number, participant.spending()))


def step(model: Model, round_: Round, records: Records, number: int) -> Model:
    """Return a model trained on the device's records, as the training asks for.

    Half of the devices take the even rounds. That does not depend on the records: a step that
    kept silent because of them would tell something, so one that fails sends zeros.
    """
    if round_.number % 2 != number % 2:
        raise Skip("the other half of the devices takes this round")
    images, digits = records
    local, batches = round_.local, len(digits) // round_.local.batch_size
    for _ in range(local.epochs):
        order = np.random.default_rng().permutation(len(digits))
        for rows in np.array_split(order, batches):
            error = probabilities(model, images[rows]) - np.eye(10)[digits[rows]]
            model["weights"] -= local.learning_rate * error.T @ images[rows] / len(rows)
            model["bias"] -= local.learning_rate * error.mean(axis=0)
    return model


def probabilities(model: Model, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probability of each digit, shape (n, 10)."""
    scores = images @ model["weights"].T + model["bias"]
    found = np.exp(scores - scores.max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True)


# What the operator does: once, with a server that runs.


@contextlib.contextmanager
def server(folder: Path, *, http: bool) -> Iterator[tuple[str, str]]:
    """Run `hearsay serve`; yield the address for the operator, and the target for devices."""
    command = [sys.executable, "-m", "hearsay_server", "serve", "--data", str(folder / "data")]
    port = free_port()
    command += ["--listen", "127.0.0.1:0", *(["--http", f"127.0.0.1:{port}"] if http else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().removeprefix("listening on ").strip()
        yield address, f"http://127.0.0.1:{port}" if http else address
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def declare(folder: Path, address: str, devices: int, rounds: int) -> None:
    """Register the training, with a first model of zeros."""
    first = {"weights": np.zeros((10, 64), np.float32), "bias": np.zeros(10, np.float32)}
    (folder / "first.safetensors").write_bytes(models.write(first))
    per_round = (devices + 1) // 2
    toml = TRAINING.format(
        rounds=rounds,
        per_round=per_round,
        least=(per_round + 1) // 2,
        participations=(rounds + 1) // 2,
    )
    (folder / "digits.toml").write_text(toml)
    create = ["training", "create", str(folder / "digits.toml"), "--target", address]
    subprocess.run([sys.executable, "-m", "hearsay_server", *create], check=True)


def watch(folder: Path, address: str, test: Records) -> Iterator[float]:
    """Print each round as it is over, and yield the accuracy of its model."""
    training = from_file(folder / "digits.toml").training
    print("round  updates  accuracy    rho  epsilon")
    with contextlib.closing(open_calls(address)) as calls:
        seen, is_running = 0, True
        while is_running:
            time.sleep(0.1)
            request = admin_pb2.ShowTrainingRequest(training="digits", after=seen)
            shown = calls.call("Admin/ShowTraining", request, admin_pb2.ShowTrainingResponse, 10)
            is_running = shown.status.state == admin_pb2.TrainingStatus.RUNNING
            for each in shown.rounds:
                if each.state != admin_pb2.TrainingRound.AGGREGATED:
                    continue
                seen = each.round
                asked = trainer_pb2.GetModelRequest(training="digits", model=each.result)
                file = calls.call("Trainer/GetModel", asked, trainer_pb2.GetModelResponse, 10)
                guesses = probabilities(models.read(file.data), test[0]).argmax(axis=1)
                accuracy = float(np.mean(guesses == test[1]))
                rho = float(figures.spent_rho(training, seen) or 0)
                epsilon = figures.spent_epsilon(training, seen)
                print(f"{seen:5}  {each.updates:7}  {accuracy:8.1%}  {rho:5.3f}  {epsilon:7.2f}")
                yield accuracy


# Both, on one machine.


def deal(folder: Path, devices: int) -> Records:
    """Give each device its records, as a file; return those that no device has."""
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(digits))
    for number, rows in enumerate(np.array_split(order[TESTED:], devices)):
        np.savez(folder / f"records {number}.npz", images=images[rows], digits=digits[rows])
    return images[order[:TESTED]], digits[order[:TESTED]]


def run(
    folder: Path, *, devices: int = DEVICES, rounds: int = ROUNDS, http: bool = False
) -> tuple[list[float], list[Participation | None]]:
    """Play a training through; return the accuracy after each round, and what each device spent."""
    test = deal(folder, devices)
    context = multiprocessing.get_context("spawn")
    barrier, told = context.Barrier(devices + 1), context.Queue()
    with server(folder, http=http) as (address, target):
        processes = [
            context.Process(target=device, args=(number, target, folder, barrier, told))
            for number in range(devices)
        ]
        try:
            for process in processes:
                process.start()
            declare(folder, address, devices, rounds)
            barrier.wait()  # all have consented
            accuracies = list(watch(folder, address, test))
            spent = dict(told.get(timeout=60) for _ in processes)
            for process in processes:
                process.join()
        finally:
            for process in processes:
                process.kill()
    return accuracies, [spent[number] for number in range(devices)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--http", action="store_true", help="reach the server over HTTP")
    parser.add_argument("--devices", type=int, default=DEVICES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        accuracies, spent = run(
            Path(folder), devices=given.devices, rounds=given.rounds, http=given.http
        )
        last = np.array(accuracies[-10:])
        print(f"\n{len(accuracies)} rounds in {time.monotonic() - begin:.0f} seconds")
        print(f"accuracy of the last ten: {last.mean():.1%} ± {last.std(ddof=1):.1%}")
        print("\ndevice  rounds taken part in  last round  rho, charged once")
        for number, each in enumerate(spent):
            assert each is not None
            taken = f"{each.used} of {each.participations}"
            print(f"{number:6}  {taken:>20}  {each.last_round:10}  {each.rho:17.4f}")
        print("\nWhat the user of device 0 sees, by `hearsay device show`:\n", flush=True)
        show = ["device", "show", str(Path(folder, "device 0.db"))]
        subprocess.run([sys.executable, "-m", "hearsay_server", *show], check=True)


if __name__ == "__main__":
    main()
