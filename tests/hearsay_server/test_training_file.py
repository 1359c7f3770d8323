"""A training's file is read strictly, and its first model with it."""

import hashlib
import math
from fractions import Fraction
from pathlib import Path

import pytest
from training_files import MODEL, TRAINING, declared

from hearsay import InvalidInput
from hearsay.federated.declaration import CentralNoise, LocalNoise, RecordLevel
from hearsay_server.trainings.training import from_file
from ldp import SphereCodebook


def test_a_file_becomes_a_training_and_what_it_leaves_out_is_filled_in(tmp_path: Path) -> None:
    found = declared(tmp_path)
    training = found.training
    assert found.model == MODEL
    assert training.initial == hashlib.sha256(MODEL).digest()
    assert training.dimension == 9
    assert training.max_update_norm == 1.5
    assert (training.local.epochs, training.local.batch_size) == (1, 10)
    assert (training.aggregation.rule, training.aggregation.optimizer) == ("mean", "sgd")
    assert training.encoding is not None
    assert training.encoding.kind == "float32"
    noise = training.protection
    assert isinstance(noise, CentralNoise)
    assert (noise.mechanism, noise.bands) == ("toeplitz", 25)
    assert noise.noise_multiplier == 2 + Fraction(1, 10**6)  # rounded up, never down
    assert declared(tmp_path).frozen == found.frozen


def test_each_protection_can_be_declared(tmp_path: Path) -> None:
    head = TRAINING[: TRAINING.index("[training.central]")]
    local = declared(tmp_path, head + "[training.local_noise]\nepsilon = 2\ncodes = 64").training
    assert isinstance(local.protection, LocalNoise)
    assert isinstance(local.protection.mechanism, SphereCodebook)
    assert local.epsilon_per_update is not None
    assert math.isclose(local.epsilon_per_update, 2, rel_tol=1e-6)
    assert local.encoding is None
    records = "[training.record_level]\nnoise_multiplier = 1\nmax_grad_norm = 0.5\n"
    robust = '[training.aggregation]\nrule = "krum"\nhostile = 2\n'
    found = declared(tmp_path, head + records + robust).training
    assert isinstance(found.protection, RecordLevel)
    assert found.aggregation.hostile == 2
    tree = declared(tmp_path, TRAINING + 'mechanism = "tree"\n').training
    assert isinstance(tree.protection, CentralNoise)
    assert tree.protection.bands == 0
    once = TRAINING.replace("participations = 4\nseparation = 25", "participations = 1")
    assert declared(tmp_path, once).training.separation == 1


REFUSED = {
    "unknown key": ("rounds = 100", "rounds = 100\nround = 1", ": unknown key 'round'"),
    "the model's hash by hand": (
        "rounds = 100",
        'rounds = 100\ninitial = "00"',
        ": unknown key 'initial'",
    ),
    "unknown key of a table": (
        "batch_size = 10",
        "batch = 10",
        ".local: unknown key 'batch'",
    ),
    "unknown table": ("[training.central]", "[training.secure]", ": unknown key 'secure'"),
    "noise of another": (
        "[training.central]",
        "[training.two_servers]",
        ".two_servers: unknown key 'noise_multiplier'",
    ),
    "a number in quotes": (
        "rounds = 100",
        'rounds = "100"',
        ': rounds must be a whole number, got "100"',
    ),
    "a broken number of rounds": (
        "rounds = 100",
        "rounds = 100.5",
        ": rounds must be a whole number, got 100.5",
    ),
    "a text in a table": (
        "learning_rate = 0.1",
        'learning_rate = "0.1"',
        '.local: learning_rate must be a number, got "0.1"',
    ),
    "a number for a text": (
        '"softmax"',
        "7",
        ": architecture must be a text in quotes, got 7",
    ),
    "missing key": ("rounds = 100\n", "", ": rounds is missing"),
    "no separation": ("separation = 25\n", "", ": separation is missing"),
    "a table that is none": (
        "[training.local]\nbatch_size = 10\nlearning_rate = 0.1",
        "local = 1",
        ": local is a table, as [training.local]",
    ),
    "no protection": (
        "[training.central]\nnoise_multiplier = 2.0000001",
        "",
        ": expected one of [training.central], [training.local_noise], [training.record_level] "
        "and [training.two_servers], got none",
    ),
    "two protections": (
        "[training.central]",
        "[training.record_level]\n[training.central]",
        "got central and record_level",
    ),
    "noise that is none": (
        "noise_multiplier = 2.0000001",
        "noise_multiplier = nan",
        ".central: noise_multiplier must be a number > 0, got nan",
    ),
    "a value outside its limits": (
        "min_updates = 10",
        "min_updates = 21",
        ".min_updates: expected 1 to updates_per_round, which is 20, got 21",
    ),
    "a model that is not there": (
        "digits.safetensors",
        "nothing.safetensors",
        ": model: cannot read",
    ),
    "no model": ('model = "digits.safetensors"\n', "", ": model must name a safetensors file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_the_file_and_the_place(case: str, tmp_path: Path) -> None:
    old, new, message = REFUSED[case]
    assert old in TRAINING
    with pytest.raises(InvalidInput) as refused:
        declared(tmp_path, TRAINING.replace(old, new))
    place = f"{tmp_path / 'digits.toml'}: training"
    assert str(refused.value).startswith(place)
    assert message in str(refused.value).removeprefix(place)


def test_a_file_without_its_table_or_in_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"digits\.toml: a training is written as one \[tra"):
        declared(tmp_path, 'name = "digits"')
    with pytest.raises(InvalidInput, match=r"unknown key 'name' beside \[training\]"):
        declared(tmp_path, 'name = "digits"\n' + TRAINING)
    with pytest.raises(InvalidInput, match=r"digits\.toml: .*line 3"):
        declared(tmp_path, "[training]\nrounds = 1\nrounds = 2\n")
    with pytest.raises(InvalidInput, match=r"cannot read .*other"):
        from_file(tmp_path / "other.toml")


def test_a_first_model_that_is_not_one_of_float32_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="training: model: no safetensors file"):
        declared(tmp_path, model=b"no model")
    doubles = MODEL.replace(b'"F32"', b'"F64"')
    with pytest.raises(InvalidInput, match="must be F32, got 'F64'"):
        declared(tmp_path, model=doubles)


def test_noise_that_a_server_cannot_add_is_refused_before_round_1(tmp_path: Path) -> None:
    long = TRAINING.replace("rounds = 100", "rounds = 65_536").replace("2.0000001", "900_000")
    with pytest.raises(InvalidInput, match=r"training\.central: noise of 900000 .* is too fine"):
        declared(tmp_path, long)
