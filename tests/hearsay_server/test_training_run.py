"""`hearsay training run --simulate` tries a training with its own protection, on one machine."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from command import hearsay
from training_files import TRAINING, written

from hearsay.federated import models
from hearsay_server.trainings import examples

SMALL = (
    TRAINING.replace(
        "updates_per_round = 20\nmin_updates = 10", "updates_per_round = 6\nmin_updates = 3"
    )
    .replace("participations = 4\nseparation = 25", "participations = 5\nseparation = 2")
    .replace("rounds = 100", "rounds = 10")
    .replace("2.0000001", "0.05")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A training's file, and examples of three groups that can be told apart."""
    written(tmp_path, SMALL)
    rng = np.random.default_rng(5)
    labels = np.arange(120) % 3
    centres = np.array([[0.0, 3.0], [3.0, 0.0], [-3.0, -3.0]])
    features = centres[labels] + rng.normal(size=(120, 2))
    np.savez(tmp_path / "groups.npz", features=features, labels=labels)
    with (tmp_path / "groups.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["east", "group", "north", "person"])
        rows.writerows(
            [f"{east:.3f}", label, f"{north:.3f}", f"p{place % 12}"]
            for place, ((east, north), label) in enumerate(zip(features, labels, strict=True))
        )
    return tmp_path


def run(folder: Path, *options: object, data: str = "groups.npz") -> tuple[int, str, str]:
    done = hearsay(
        *("training", "run", folder / "digits.toml", "--simulate", "--data", folder / data),
        *("--people", 12, *options),
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_a_simulated_training_learns_and_writes_what_it_is_asked_for(folder: Path) -> None:
    out, history, plot = (folder / name for name in ("m.safetensors", "h.csv", "p.png"))
    code, printed, told = run(
        folder, "--seed", 1, "--out", out, "--history", history, "--plot", plot
    )
    assert (code, told) == (0, f"drawn into {plot}\n")
    assert "digits: 12 people with 9 examples, tested on 12" in printed
    assert "0 rounds were dropped" in printed
    assert "if the server is honest" in " ".join(printed.split())
    rows = list(csv.DictReader(history.read_text().splitlines()))
    assert [int(row["updates"]) for row in rows] == [6] * 10
    assert float(rows[-1]["accuracy"]) > 0.8
    spent = [float(row["rho"]) for row in rows]
    assert spent == sorted(spent)
    assert models.read(out.read_bytes(), 9).keys() == {"0.bias", "0.weight"}
    assert plot.stat().st_size > 1000
    again = folder / "again.safetensors"
    run(folder, "--seed", 1, "--out", again)
    assert again.read_bytes() == out.read_bytes()


def test_examples_of_a_csv_file_belong_to_the_people_it_names(folder: Path) -> None:
    code, printed, told = run(
        folder, "--label", "group", "--rounds", 2, "--json", data="groups.csv"
    )
    assert code == 0, told
    document = json.loads(printed)
    assert document["people"] == 12
    assert [each["bytes"] for each in document["history"]] == [6 * 36] * 2
    found = examples.load(folder / "groups.csv", "group")
    assert found.person is not None
    assert np.bincount(found.person).tolist() == [10] * 12


@pytest.mark.slow
def test_each_protection_can_be_tried(folder: Path) -> None:
    head = SMALL[: SMALL.index("[training.central]")]
    written(folder, head + "[training.local_noise]\nepsilon = 8\ncodes = 64")
    _, printed, told = run(folder, "--rounds", 2, "--json")
    assert told == ""
    first, last = json.loads(printed)["history"]
    assert (first["bytes"], last["rho"]) == (6 * 9, None)
    assert first["epsilon"] == pytest.approx(8, rel=1e-6)  # each takes part in one of two rounds
    assert last["epsilon"] == first["epsilon"]
    robust = '[training.aggregation]\nrule = "multi_krum"\nhostile = 1\n'
    noise = "[training.record_level]\nnoise_multiplier = 1\nmax_grad_norm = 1\n"
    written(folder, (head + robust + noise).replace("min_updates = 3", "min_updates = 5"))
    _, printed, told = run(folder, "--rounds", 1, "--json")
    assert told == ""
    document = json.loads(printed)
    assert 1 < document["record_epsilon"] < 20
    assert document["history"][0]["epsilon"] is None


def test_rounds_that_too_few_people_may_join_are_dropped_and_told(folder: Path) -> None:
    code, printed, told = run(folder, "--people", 8, "--rounds", 2, "--seed", 1)
    assert code == 0
    assert "8 people cannot fill all 10 rounds" in told
    assert "1 rounds were dropped" in printed  # two may take part in the second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--people", 2), "a round takes 6 updates, and there are only 2 people in the data"),
        (("--rounds", 11), "--rounds must be 1 to 10, got 11"),
        (("--label", "group"), "has no array 'group'; it has features, labels"),
        (("--split", "even"), "--split must be iid, shards, shards:COUNT, dirichlet or"),
        (("--split", "dirichlet:few"), "--split must be iid, shards, shards:COUNT, dirichlet or"),
        (("--split", "shards:0"), "with a COUNT of at least 1 and an ALPHA > 0, got 'shards:0'"),
        (("--people", "0"), "--people must be at least 1, got 0"),
        (("--people", "9000"), "of 9,000 people takes 9,000 examples at least, and there are "),
        (("--split", "dirichlet:1e-6"), "left some of 12 people without examples, however"),
        (("--plot", "plot.txt"), "--plot must name a file that ends in .png, .svg, .pdf"),
        (("--delta", 2), "--delta must be > 0 and < 1, got 2.0"),
    ],
)
def test_what_cannot_be_tried_is_told_in_one_line(
    options: tuple[object, ...], message: str, folder: Path
) -> None:
    code, _, told = run(folder, *options)
    assert code == 1
    assert message in told
    assert told.count("\n") == 1


def test_a_training_runs_here_only_as_a_simulation(folder: Path) -> None:
    done = hearsay("training", "run", folder / "digits.toml", "--data", folder / "groups.npz")
    assert "give --simulate: this command tries a training on one machine" in done.stderr


def test_a_first_model_fits_the_architectures_of_a_simulation(folder: Path) -> None:
    for name, parameters in (("softmax", 9), ("2nn", 41_403)):
        out = folder / f"{name}.safetensors"
        sizes = ("--features", 2, "--classes", 3, "--out", out)
        done = hearsay("training", "model", name, *sizes)
        assert done.stdout == f"{out}: {name}, {parameters:,} parameters\n"
        assert sum(each.size for each in models.read(out.read_bytes()).values()) == parameters
    unknown = hearsay("training", "model", "cnn", *sizes[:-1], folder / "cnn")
    assert unknown.stderr == "hearsay: architecture must be one of softmax, 2nn, got 'cnn'\n"
    written(folder, SMALL, (folder / "2nn.safetensors").read_bytes())
    code, _, told = run(folder)
    assert code == 1
    assert "a model of 'softmax' with 2 features and 3 classes has" in told


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,labels\n1,2\n3\n", "each row must have 2 cells, as its header"),
        ("a,labels\n1,x\n", "could not convert string to float"),
        ("a,labels\n1,0.5\n", "'labels' must have whole numbers from 0 on"),
        ("a,labels\ninf,1\n", "features must be finite numbers"),
        ("a,labels\n", "expected features of shape (n, d)"),
    ],
)
def test_examples_that_are_none_are_refused(rows: str, message: str, folder: Path) -> None:
    (folder / "bad.csv").write_text(rows)
    code, _, told = run(folder, data="bad.csv")
    assert code == 1
    assert message in told


def test_updates_that_two_servers_would_sum_can_be_tried(folder: Path) -> None:
    head = SMALL[: SMALL.index("[training.central]")]
    split = f'[training.two_servers]\nhelper_key = "{"5f" * 32}"\nrho = 1000\n'
    written(folder, head + split)
    code, printed, told = run(folder, "--seed", 1, "--rounds", 6, "--json")
    assert (code, told) == (0, "")
    rows = json.loads(printed)["history"]
    assert rows[0]["bytes"] == 6 * (80 + 16 * 4 + 48)  # nine parameters, filled up to sixteen
    assert rows[-1]["accuracy"] > 0.8
    # Each person takes part in three of six rounds at most, of five in all.
    assert rows[-1]["rho"] == pytest.approx(600, rel=1e-3)
