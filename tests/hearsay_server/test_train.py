"""`hearsay train`, from a real server to a saved model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from collected import DAYS, batch, register
from command import hearsay
from serving import submit

from hearsay import Analyst

pytest.importorskip("torch")
estimators = pytest.importorskip("dpsgd.estimators")

TOML = """
name = "marriages"
period = "P1D"
[levels]
standard = 10.0
open = 30.0
[[attributes]]
name = "affair"
weight = 2
[attributes.categorical]
values = ["no", "yes"]
sensitive = ["yes"]
[[attributes]]
name = "rating"
[attributes.categorical]
values = ["1", "2", "3"]
[[attributes]]
name = "age"
mechanism = "piecewise"
[attributes.numeric]
low = 20
high = 60
[[attributes]]
name = "income"
[attributes.numeric]
low = 0
high = 100
bins = 4
"""
SAMPLED = TOML.replace("marriages", "sampled").replace("[levels]", 'budget = "sample"\n[levels]')
ODDS = np.array([0.7, 0.4, 0.1])
ROWS = 3000


def people(rng: np.random.Generator) -> dict[str, Any]:
    """Return answers: who rates a marriage higher has fewer affairs, and is older."""
    rating = rng.integers(3, size=ROWS)
    affair = (rng.random(ROWS) < ODDS[rating]).astype(int)
    age = 30 + 8 * rating + rng.uniform(-8, 8, ROWS)
    return {"affair": affair, "rating": rating, "age": age / 20 - 2}


@pytest.fixture(scope="module")
def collected(address: str) -> Iterator[str]:
    _, plan = register(address, TOML)
    register(address, SAMPLED)
    rng = np.random.default_rng(5)
    for seed, level in enumerate(plan.levels):
        submit(address, batch(plan, level, DAYS[0], people(rng), 10 * seed))
    yield address


def trained(address: str, *options: object) -> str:
    done = hearsay("train", *options, "--server", address)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_a_label_is_learned_from_randomised_answers_and_saved_with_its_account(
    collected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = trained(collected, "marriages", "--target", "affair", "--features", "rating")
    assert "6,000 rows" in told
    assert "training: without noise" in told
    assert "local inf" in told  # a report may reveal a "no"
    assert "saved for dpsgd.estimators.load: marriages-affair.pt" in told
    assert max(map(len, told.splitlines())) <= 80
    model = estimators.load("marriages-affair.pt")
    assert model.classes_.tolist() == ["no", "yes"]
    found = model.predict_proba(pd.DataFrame({"rating": ["1", "2", "3"]}))[:, 1]
    assert found == pytest.approx(ODDS, abs=0.06)
    assert str(model.account_) in told


@pytest.mark.slow
def test_noise_adds_a_central_guarantee(collected: str, tmp_path: Path) -> None:
    place = tmp_path / "model.pt"
    features = ("--features", "rating, age", "--epsilon", 2, "--steps", 60, "--output", place)
    told = trained(collected, "marriages", "--target", "affair", *features, "--json")
    document = json.loads(told)
    account = document["account"]
    assert 1.99 < account["spent"] <= 2
    assert account["relation"] == "add_remove"
    assert all(level["local"] is None for level in account["levels"])
    model = estimators.load(place)
    assert model.epsilon_ == account["spent"]
    assert model.feature_names_in_.tolist() == ["rating", "age"]
    assert model.history_[-1].step == 60
    young, old = (
        pd.DataFrame({"rating": "1", "age": [25]}),
        pd.DataFrame({"rating": "3", "age": [55]}),
    )
    assert model.predict_proba(young)[0, 1] > model.predict_proba(old)[0, 1] + 0.2


def test_a_number_is_regressed_as_fit_does(collected: str, tmp_path: Path) -> None:
    place = tmp_path / "model.pt"
    trained(collected, "marriages", "--target", "age", "--features", "rating", "--output", place)
    found = estimators.load(place).predict(pd.DataFrame({"rating": ["1", "2", "3"]}))
    with Analyst(collected) as analyst:
        fitted = analyst.ols("marriages", "age ~ C(rating)").to_frame()
    intercept, *others = fitted["estimate"]
    assert found == pytest.approx([intercept, *(intercept + other for other in others)], rel=1e-5)
    assert found == pytest.approx([30, 38, 46], abs=4 * fitted["standard_error"].sum())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("marriages", "--target", "afair", "--features", "age"), "has no attribute 'afair'"),
        (("marriages", "--target", "affair", "--features", "age,height"), "no attribute 'height'"),
        (("marriages", "--target", "affair", "--features", "income"), "cannot be trained on"),
        (("marriages", "--target", "income", "--features", "age"), "cannot be trained on"),
        (("marriages", "--target", "age", "--features", "age"), "each feature once"),
        (("marriages", "--target", "age", "--features", "rating", "--hidden", 8), "classifiers"),
        (("marriages", "--target", "affair", "--features", "age", "--hidden", "x"), "widths"),
        (("marriages", "--target", "affair", "--features", "age", "--epsilon", -1), "epsilon must"),
        (("sampled", "--target", "affair", "--features", "age"), "no such rows"),
        (("unknown", "--target", "affair", "--features", "age"), "unknown"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_nothing(
    collected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = hearsay("train", *options, "--server", collected)
    assert done.returncode == 1
    assert reason in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("none/model.pt", "there is no folder"),
        ("", "no file can be written at '.'"),
        ("old.pt", "old.pt is there: give --force"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.pt").touch()
    options = ("--target", "affair", "--features", "age", "--server", "127.0.0.1:1")
    done = hearsay("train", "marriages", *options, "--output", output)
    assert reason in done.stderr
    assert done.returncode == 1
