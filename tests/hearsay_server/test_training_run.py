"""`hearsay training run --simulate` tries a training with its own protection, on one machine."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from command import hearsay
from numpy.typing import NDArray
from training_files import TRAINING, written

from hearsay.federated import models
from hearsay_server.trainings import examples
from ldp import InvalidInput

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


def _only_says_whose(told: str) -> bool:
    """Whether the only words beside the results are that no example has its person."""
    words = " ".join(told.split())
    return "has no 'person'" in words and words.endswith("it is their epsilon that is told.")


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
    assert _only_says_whose(told)
    first, last = json.loads(printed)["history"]
    assert (first["bytes"], last["rho"]) == (6 * 9, None)
    assert first["epsilon"] == pytest.approx(8, rel=1e-6)  # each takes part in one of two rounds
    assert last["epsilon"] == first["epsilon"]
    robust = '[training.aggregation]\nrule = "multi_krum"\nhostile = 1\n'
    noise = "[training.record_level]\nnoise_multiplier = 1\nmax_grad_norm = 1\n"
    written(folder, (head + robust + noise).replace("min_updates = 3", "min_updates = 5"))
    _, printed, told = run(folder, "--rounds", 1, "--json")
    assert _only_says_whose(told)
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


@pytest.mark.parametrize("heading", ["person", "Person", " person ", "PERSON\u00a0"])
def test_a_column_of_people_counts_whatever_its_case_and_blanks(
    heading: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    rows = "ada,1,2,0\n\nbob,3,4,1\nada,5,6,2\n"
    for mark in ("", "\ufeff", "\ufeffsep=,\r\n"):
        file.write_text(f"{mark}{heading},f0, f1 ,Labels\n{rows}", encoding="utf-8")
        found = examples.load(file)
        assert found.features.tolist() == [[1, 2], [3, 4], [5, 6]]
        assert found.labels.tolist() == [0, 1, 2]
        assert found.person is not None
        assert found.person.tolist() == [0, 1, 0]


def test_where_no_example_has_its_person_the_output_begins_with_it(folder: Path) -> None:
    code, printed, _ = run(folder, "--rounds", 1)
    assert code == 0
    first = "".join(printed.split())  # a long path is broken at its hyphens
    said = f"{folder / 'groups.npz'}hasno'person'thatsayswhoseanexample"
    assert first.startswith(said.replace(" ", ""))
    assert "12peoplewhodonotexist" in first


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,labels\n1,2\n3\n", "row 3 has 1 cell, the heading has 2"),
        ("a,labels\n1,2\n\nx,1\n", "row 4: 'a' must be a finite number of 32 bits, got 'x'"),
        ("a,labels\n,1\n", "row 2: 'a' must be a finite number of 32 bits, got ''"),
        ("a,labels\ninf,1\n", "row 2: 'a' must be a finite number of 32 bits, got 'inf'"),
        ("a,labels\n1e39,1\n", "row 2: 'a' must be a finite number of 32 bits, got '1e39'"),
        ("a,labels\n1,x\n", "row 2: 'labels' must be a whole number, got 'x'"),
        ("a,labels\n1,0.5\n", "row 2: 'labels' must have whole numbers from 0 on"),
        ("a,labels\n1,-1\n", "row 2: 'labels' must have whole numbers from 0 on"),
        ("a,labels\n1,9007199254740993\n", "got '9007199254740993'"),
        ("a,labels\n", "has no rows below its heading"),
        ("a,group\n1,2\n", "has no column 'labels'; it has a, group"),
        ("a,labels,Labels\n1,2,3\n", "'labels' and 'Labels' may both be 'labels'"),
        ("labels,person\n1,ada\n", "has no column of features beside 'labels'"),
        (",a,labels\n0,1,2\n", "column 1 has no heading"),
        ("a,labels,person\n1,2,ada\n1,2, \n", "row 3: 'person' is blank: expected whose it is"),
    ],
)
def test_examples_that_are_none_are_refused(rows: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(rows)
    with pytest.raises(InvalidInput) as refused:
        examples.load(file)
    assert str(refused.value).startswith(str(file))
    assert message in str(refused.value)


def test_examples_to_test_on_have_the_same_features_in_the_same_order(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("east,north,labels\n1,2,0\n")
    found = examples.load(first)
    second.write_text("labels, East,north\n0,1,2\n")
    assert examples.load_like(second, "labels", found).features.tolist() == [[1, 2]]
    second.write_text("labels,north,east\n0,2,1\n")
    with pytest.raises(InvalidInput, match="feature 1 is 'north', and 'east' in the other"):
        examples.load_like(second, "labels", found)


_FINE = {"features": np.ones((2, 2)), "labels": np.array([0, 1])}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.array([0, 9007199254740993])}, "got 9007199254740993 in example 1"),
        ({"labels": np.array([0, 2**64 - 1], np.uint64)}, "got 18446744073709551615 in example 1"),
        ({"labels": np.array([0, 1 + 2j])}, "'labels' must have real numbers, got complex128"),
        ({"labels": np.array([0, np.nan])}, "got nan in example 1"),
        ({"labels": np.array(["0", "1"])}, "'labels' must have real numbers, got <U1"),
        ({"labels": np.array([0, None])}, "Object arrays cannot be loaded"),
        ({"features": np.ones((2, 2)) * 1j}, "'features' must have real numbers, got complex128"),
        ({"features": np.full((2, 2), 1e39)}, "got 1e+39 in example 0"),
        ({"features": np.array([[1, 2], [3, -np.inf]])}, "got -inf in example 1"),
        ({"features": np.ones((2, 0))}, "expected features of shape (n, d)"),
        ({"features": np.ones((2, 2), "datetime64[s]")}, "got datetime64[s]"),
        ({"person": np.array([1.0, np.nan])}, "'person' is blank in example 1"),
        ({"Person": np.array(["ada", " "])}, "'person' is blank in example 1"),
        ({"person": np.array([1j, 2j])}, "'person' must have numbers or texts, got complex128"),
        ({"person": np.array(["ada"])}, "'person' has shape (1,), not (2,)"),
        ({"Labels": np.array([0, 1])}, "may both be 'labels'"),
    ],
    ids=range(16),
)
def test_arrays_that_are_none_are_refused(
    arrays: dict[str, NDArray[np.generic]], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.npz"
    np.savez(file, **(_FINE | arrays))
    with pytest.raises(InvalidInput) as refused:
        examples.load(file)
    assert str(file) in str(refused.value)
    assert message in str(refused.value)


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.npz"
    np.savez(file, **_FINE)
    whole = file.read_bytes()
    np.save(tmp_path / "one.npy", _FINE["labels"])
    for content in (b"", b"text", whole[:99], whole[:60] + b"?" * 40 + whole[100:]):
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match="cannot read"):
            examples.load(file)
    file.write_bytes((tmp_path / "one.npy").read_bytes())
    with pytest.raises(InvalidInput, match="has one array, and no names"):
        examples.load(file)


def test_updates_that_two_servers_would_sum_can_be_tried(folder: Path) -> None:
    head = SMALL[: SMALL.index("[training.central]")]
    split = f'[training.two_servers]\nhelper_key = "{"5f" * 32}"\nrho = 1000\n'
    written(folder, head + split)
    code, printed, told = run(folder, "--seed", 1, "--rounds", 6, "--json")
    assert code == 0
    assert _only_says_whose(told)
    rows = json.loads(printed)["history"]
    assert rows[0]["bytes"] == 6 * (80 + 16 * 4 + 48)  # nine parameters, filled up to sixteen
    assert rows[-1]["accuracy"] > 0.8
    # Each person takes part in three of six rounds at most, of five in all.
    assert rows[-1]["rho"] == pytest.approx(600, rel=1e-3)
