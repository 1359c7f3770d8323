"""Private estimators: scikit-learn's interface, what they learn, and what they promise."""

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

pytest.importorskip("sklearn")

from reported import CATEGORICAL, every_code
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpsgd import Rows
from dpsgd.accounting import (
    NoSampling,
    PoissonSampling,
    RDPAccountant,
    Relation,
    calibrate_noise_multiplier,
)
from dpsgd.estimators import PrivateClassifier, PrivateRegressor, Progress, load, save
from dpsgd.estimators.features import Feature
from dpsgd.estimators.moments import moments
from dpsgd.reports.rows import Column
from dpsgd.training.checkpoint import write
from ldp import KRR, InvalidInput, Mechanism, OneBitMean, PiecewiseMechanism, Policy
from ldp.errors import NotReady, StorageFailed
from ldp.estimating.regression import Indicator, Number, Records, linear
from ldp.planning.design import design
from ldp.testing import SeededCoins
from pages import blocks

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "training.md"

TWICE = "two trainings on the same data are compared, and each has noise of its own"
FORBIDDEN = {
    "check_fit_idempotent": TWICE,
    "check_supervised_y_2d": TWICE,
    "check_classifier_data_not_an_array": TWICE,
    "check_regressor_data_not_an_array": TWICE,
    "check_regressors_int": TWICE,
}
"""The checks of scikit-learn that no private estimator can pass, and why."""

TAKEN = "ignore:the classes are taken from y"


@pytest.mark.slow
@pytest.mark.filterwarnings(TAKEN)
@parametrize_with_checks(
    [PrivateClassifier(steps=50), PrivateRegressor(steps=50)],
    expected_failed_checks=lambda _: FORBIDDEN,
    xfail_strict=False,
)
def test_the_checks_of_scikit_learn_pass(estimator: Any, check: Any) -> None:
    check(estimator)


# --- what is learned ---------------------------------------------------------------------------


def split(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Half a quarter of the rows to test with, and the others."""
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[len(y) // 4 :], order[: len(y) // 4]
    return X[train], y[train], X[test], y[test]


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.83), (3.0, 0.905)])
def test_digits_are_read_at_small_epsilons(epsilon: float, least: float) -> None:
    """1,347 of them; without privacy 95%. The mean of three trainings."""
    X, y, others, truth = split(*load_digits(return_X_y=True))
    exact = LogisticRegression(max_iter=500).fit(X / 8 - 1, y).score(others / 8 - 1, truth)
    assert exact > 0.94
    model = PrivateClassifier(epsilon=epsilon, feature_bounds=(0, 16), classes=range(10))
    scores = [clone(model).fit(X, y).score(others, truth) for _ in range(3)]
    assert least < np.mean(scores) < exact


@pytest.mark.slow
def test_tumours_are_told_apart_by_measures_in_wide_public_bounds() -> None:
    """Powers of ten: private means and deviations scale what the bounds leave small."""
    data = load_breast_cancer()
    high = 10.0 ** np.ceil(np.log10(data.data.max(0)))
    X, y, others, truth = split(data.data, data.target)
    model = PrivateClassifier(epsilon=3.0, feature_bounds=(0, high), classes=(0, 1))
    model.set_params(standardize=True)
    scores = [clone(model).fit(X, y).score(others, truth) for _ in range(3)]
    assert np.mean(scores) > 0.92


@pytest.mark.slow
def test_a_disease_is_foretold_as_well_as_epsilon_allows() -> None:
    data = load_diabetes(scaled=False)
    bounds = np.floor(data.data.min(0) / 10) * 10, np.ceil(data.data.max(0) / 10) * 10
    X, y, others, truth = split(data.data, data.target)
    exact = LinearRegression().fit(X, y).score(others, truth)
    model = PrivateRegressor(epsilon=3.0, feature_bounds=bounds, target_bounds=(0, 400))
    scores = [clone(model).fit(X, y).score(others, truth) for _ in range(3)]
    assert exact - 0.15 < np.mean(scores) < exact + 0.02


@pytest.mark.slow
def test_a_small_network_learns_what_no_line_separates(coins: SeededCoins) -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (4000, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = PrivateClassifier(epsilon=3.0, hidden=(16,), steps=200, classes=(0, 1), random_state=0)
    assert model.fit(X, y).score(X, y) > 0.9


@pytest.mark.slow
def test_a_regression_finds_the_slope_of_numbers_in_bounds() -> None:
    rng = np.random.default_rng(1)
    age = rng.uniform(20, 60, 3000)
    pay = 1000 + 50 * age + rng.normal(0, 200, 3000)
    model = PrivateRegressor(epsilon=1.0, feature_bounds=(20, 60), target_bounds=(1000, 5000))
    model.fit(age[:, np.newaxis], pay)
    low, high = model.predict([[25], [55]])
    assert (high - low) / 30 == pytest.approx(50, rel=0.15)
    assert model.score(age[:, np.newaxis], pay) > 0.8


# --- scikit-learn's tools ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Two features: one of values, and one in years."""
    rng = np.random.default_rng(2)
    colour = rng.choice(["red", "green", "blue"], 600)
    return pd.DataFrame({"colour": colour, "age": rng.uniform(20, 60, 600)})


@pytest.fixture(scope="module")
def bought(table: pd.DataFrame) -> np.ndarray:
    """Whether somebody bought: the red ones, and the older ones."""
    return np.where((table["colour"] == "red") | (table["age"] > 50), "yes", "no")


KNOWN: dict[str, Any] = {
    "feature_bounds": {"age": (20, 60)},
    "categories": {"colour": ["red", "green", "blue"]},
    "classes": ["no", "yes"],
    "steps": 40,
}


def test_a_data_frame_of_values_and_numbers_is_learned(
    table: pd.DataFrame, bought: np.ndarray
) -> None:
    model = PrivateClassifier(epsilon=10.0, **KNOWN).fit(table, bought)
    assert model.score(table, bought) > 0.8
    assert model.feature_names_in_.tolist() == ["colour", "age"]
    assert model.n_features_in_ == 2
    assert model.module_[0].weight.shape == (2, 4)  # a column for each colour
    assert model.predict_proba(table).sum(axis=1) == pytest.approx(np.ones(600))
    model.fit(table.replace("red", "pink"), bought)  # no error tells of a value that is not public
    bias = model.module_[0].bias.detach().softmax(0)
    unknown = model.predict_proba(pd.DataFrame({"colour": ["pink"], "age": [40]}))[0]
    assert unknown == pytest.approx(bias.numpy(), abs=1e-6)
    with pytest.raises(InvalidInput, match="could not convert string to float: 'old'"):
        model.predict(table.assign(age="old"))
    with pytest.raises(InvalidInput, match="feature names"):
        model.predict(table[["age", "colour"]])


def test_searches_pipelines_and_clones_work(table: pd.DataFrame, bought: np.ndarray) -> None:
    model = PrivateClassifier(epsilon=10.0, classes=["no", "yes"], feature_bounds=(20, 60), steps=5)
    ages = table[["age"]]
    assert clone(model).get_params() == model.get_params()
    assert len(cross_val_score(model, ages, bought, cv=2)) == 2
    search = GridSearchCV(model, {"hidden": [(), (4,)]}, cv=2).fit(ages, bought)
    assert search.best_params_["hidden"] in [(), (4,)]
    whole = make_pipeline(FunctionTransformer(lambda x: x), model).fit(ages, bought)
    assert set(whole.predict(ages)) <= {"no", "yes"}
    with pytest.raises(NotFittedError):
        clone(model).predict(ages)


# --- what is promised --------------------------------------------------------------------------


def test_every_step_is_accounted_for_and_the_target_is_kept() -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    y = (X[:, 0] > 0).astype(int)
    model = PrivateClassifier(
        epsilon=2.0,
        delta=1e-6,
        steps=30,
        batch_size=100,
        max_physical_batch_size=40,
        classes=(0, 1),
    ).fit(X, y)
    noise = model.noise_multiplier_
    by_hand = RDPAccountant(Relation.ADD_REMOVE)
    by_hand.step(noise_multiplier=noise, sampling=PoissonSampling(0.2), steps=30)
    assert model.epsilon_ == by_hand.get_epsilon(1e-6)
    assert 1.99 < model.epsilon_ <= 2.0
    assert str(model.account_) == f"training: ({model.epsilon_:.4g}, 1e-06)-DP in rows, add_remove"
    spent = [each.epsilon for each in model.history_]
    assert spent == sorted(spent)
    assert model.history_[-1] == Progress(30, 30, model.epsilon_, None)


def test_a_training_with_its_own_noise_ends_at_the_last_step_within_the_budget() -> None:
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = X[:, 0]
    model = PrivateRegressor(epsilon=1.0, noise_multiplier=8.0, steps=1000).fit(X, y)
    steps = model.history_[-1].step
    assert 1 < steps < 1000
    assert 0.9 < model.epsilon_ <= 1.0
    by_hand = RDPAccountant(Relation.ADD_REMOVE)
    by_hand.step(noise_multiplier=8.0, sampling=PoissonSampling(64 / 200), steps=steps + 1)
    assert by_hand.get_epsilon(1e-5) > 1
    with pytest.raises(
        InvalidInput, match=r"one step with noise_multiplier 0\.1 exceeds epsilon 1"
    ):
        PrivateRegressor(epsilon=1.0, noise_multiplier=0.1).fit(X, y)


def test_progress_is_told_with_the_score_of_public_data_and_may_end_a_training() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = (X[:, 0] > 0).astype(int)
    seen: list[Progress] = []

    def enough(at: Progress) -> bool:
        seen.append(at)
        return len(seen) == 3

    model = PrivateClassifier(epsilon=5.0, classes=(0, 1), steps=40, on_progress=enough)
    model.fit(X, y, validation_data=(X[:50], y[:50]))
    assert model.history_ == seen
    assert [at.step for at in seen] == [2, 4, 6]
    assert seen[-1].score == model.score(X[:50], y[:50])
    assert model.epsilon_ == seen[-1].epsilon < 5


def test_dropout_is_off_in_predictions_and_a_frozen_normalisation_trains() -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    frozen = nn.BatchNorm1d(2).eval().requires_grad_(False)
    module = nn.Sequential(frozen, nn.Dropout(0.5), nn.Linear(2, 2))
    model = PrivateClassifier(classes=(0, 1), steps=2, module=module, delta=1e-3)
    model.fit(X, X[:, 0] > 0, validation_data=(X, X[:, 0] > 0))
    assert (model.predict_proba(X) == model.predict_proba(X)).all()
    assert module[1].training
    with pytest.warns(UserWarning, match="not below 1 / 100") as told:
        model.set_params(delta=0.1).fit(X, X[:, 0] > 0)
    assert len(told) == 1


def test_the_data_set_no_scale_and_the_seed_no_noise() -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = PrivateClassifier(classes=(0, 1), steps=2, random_state=0)
    first = model.fit(X, X[:, 0] > 0).module_.state_dict()
    again = model.fit(X, X[:, 0] > 0).module_.state_dict()
    assert not torch.equal(first["0.weight"], again["0.weight"])
    assert [feature.bounds for feature in model.features_] == [None, None]


def test_standardising_is_paid_for_and_needs_bounds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(3, 0.1, 2000), rng.normal(0, 5, 2000)], axis=1)
    options: dict[str, Any] = {"standardize": True, "steps": 5, "coins": SeededCoins(1)}
    model = PrivateClassifier(epsilon=2.0, classes=(0, 1), feature_bounds=(-50, 50), **options)
    model.fit(X, X[:, 0] > 3)
    assert model.epsilon_ <= 2
    by_hand = RDPAccountant(Relation.ADD_REMOVE)
    noise = calibrate_noise_multiplier(by_hand, 0.5, 1e-5, sampling=NoSampling(), steps=1)
    by_hand.step(noise_multiplier=noise, sampling=NoSampling())
    noise = model.noise_multiplier_
    by_hand.step(noise_multiplier=noise, sampling=PoissonSampling(500 / 2000), steps=5)
    assert model.epsilon_ == pytest.approx(by_hand.get_epsilon(1e-5), rel=1e-9)
    first, second = model.features_
    assert 50 * first.center == pytest.approx(3, abs=1)
    assert 50 * second.spread == pytest.approx(5, rel=0.4)
    save(model, tmp_path / "model.pt")
    assert (load(tmp_path / "model.pt").predict_proba(X) == model.predict_proba(X)).all()
    with pytest.raises(InvalidInput, match="standardize needs feature_bounds of 0, 1"):
        PrivateClassifier(classes=(0, 1), standardize=True).fit(X, X[:, 0] > 3)
    with pytest.raises(InvalidInput, match="Rows need no standardize"):
        PrivateClassifier(epsilon=1.0, standardize=True).fit(collected(10, 1.0)[0], "y")


def test_classes_that_are_taken_from_the_labels_are_told_of() -> None:
    X, y = np.zeros((10, 1)), np.arange(10) % 2
    with pytest.warns(UserWarning, match="the classes are taken from y, and the model tells them"):
        PrivateClassifier(steps=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivateClassifier(steps=1, classes=(0, 1, 2)).fit(X, y)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"epsilon": None}, "epsilon=None is for Rows"),
        ({"epsilon": -1.0}, "epsilon must be finite and >= 0"),
        ({"delta": 2.0}, "delta must lie strictly between"),
        ({"steps": 0}, "steps must be an integer >= 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer >= 1, got 2.5"),
        ({"optimizer": "lbfgs"}, "optimizer must be adam, sgd or a function"),
        ({"feature_bounds": (1, 1)}, "low < high"),
        ({"feature_bounds": {"x": (0, 1)}}, "there is no feature 'x'; the features are 0, 1"),
        ({"feature_bounds": 3}, "feature_bounds must be"),
        ({"categories": {0: [1]}}, "two different values at least"),
        ({"classes": (0, 2)}, "y has a label that is none of the 2 classes"),
        ({"classes": (0,)}, "two classes at least"),
        ({"module": nn.BatchNorm1d(2)}, "normalises over the batch"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_trained(
    options: dict[str, Any], reason: str
) -> None:
    data = np.zeros((10, 2)), np.arange(10) % 2
    model = PrivateClassifier(steps=1, classes=(0, 1)).fit(*data)
    model.set_params(**options)
    with pytest.raises(InvalidInput, match=reason):
        model.fit(*data)
    assert not [name for name in vars(model) if name.endswith("_")]  # not fitted any more


# --- in a file ---------------------------------------------------------------------------------


def test_a_saved_model_predicts_alike_and_has_its_account(
    table: pd.DataFrame, bought: np.ndarray, tmp_path: Path
) -> None:
    model = PrivateClassifier(epsilon=10.0, hidden=(4,), **KNOWN).fit(table, bought)
    save(model, tmp_path / "model.pt")
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
    again = load(tmp_path / "model.pt")
    assert (again.predict_proba(table) == model.predict_proba(table)).all()
    assert (again.predict(table) == model.predict(table)).all()
    assert again.account_ == model.account_
    assert again.history_ == model.history_
    assert again.epsilon_ == model.epsilon_
    assert again.noise_multiplier_ == model.noise_multiplier_ > 0
    assert again.get_params()["hidden"] == (4,)


def test_a_saved_module_of_ones_own_is_built_again(tmp_path: Path) -> None:
    def wide(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 3), nn.ReLU(), nn.Linear(3, outputs))

    X = np.random.default_rng(0).normal(size=(100, 2))
    model = PrivateRegressor(module=wide, steps=2, target_bounds=(-4, 4)).fit(X, X[:, 0])
    save(model, tmp_path / "model.pt")
    assert (load(tmp_path / "model.pt", module=wide).predict(X) == model.predict(X)).all()
    with pytest.raises(InvalidInput, match="cannot read"):
        load(tmp_path / "model.pt")


def test_what_is_no_saved_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        load(tmp_path / "none.pt")
    (tmp_path / "text").write_text("hello")
    torch.save(nn.Linear(1, 1), tmp_path / "code")  # reading it would run code
    for name in ("text", "code"):
        with pytest.raises(InvalidInput, match="expected tensors"):
            load(tmp_path / name)
    write(tmp_path / "half", {"version": 1, "kind": "PrivateClassifier"})
    with pytest.raises(InvalidInput, match="is no saved model: KeyError"):
        load(tmp_path / "half")
    model = PrivateRegressor(steps=1).fit(np.zeros((10, 1)), np.arange(10.0))
    with pytest.raises(StorageFailed, match="cannot write"):
        save(model, tmp_path / "no folder" / "model.pt")
    with pytest.raises(NotFittedError):
        save(PrivateRegressor(), tmp_path / "model.pt")


# --- collected rows ----------------------------------------------------------------------------

SLOPES = np.array([1.5, -1.0, 2.0])  # of x being 1, x being 2, and a


def collected(n: int, epsilon: float) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Rows of x in three values, a number a, a label y and a number t; and true x and a."""
    rng, coins = np.random.default_rng(0), SeededCoins(3)
    x = rng.integers(3, size=n)
    a = np.clip(rng.normal(size=n) * 0.4 + 0.3 * (x - 1), -1, 1)  # features go together
    design = np.stack([x == 1, x == 2, a], axis=1)
    y = (rng.random(n) < 1 / (1 + np.exp(0.5 - design @ SLOPES))).astype(int)
    t = np.clip(design @ [0.2, -0.3, 0.5] + rng.uniform(-0.2, 0.2, n), -1, 1)
    given: dict[str, tuple[np.ndarray, Mechanism]] = {
        "x": (x, KRR(3, epsilon)),
        "a": (a, PiecewiseMechanism(epsilon)),
        "y": (y, KRR(2, epsilon)),
        "t": (t, PiecewiseMechanism(epsilon)),
    }
    levels = np.zeros(n, dtype=np.int16)
    columns = {
        name: Column(
            mechanism.randomize_many(values, coins), levels, ("only",), {"only": mechanism}
        )
        for name, (values, mechanism) in given.items()
    }
    return Rows(n, columns), x, a


def slopes(model: PrivateClassifier) -> np.ndarray:
    """The log odds ratios of the features, as `SLOPES`."""
    weight = model.module_[0].weight.detach().numpy()
    both = weight[1] - weight[0]
    return np.array([both[1] - both[0], both[2] - both[0], both[3]])


@pytest.mark.slow
def test_a_classifier_finds_the_odds_of_true_answers_in_randomised_features_and_labels() -> None:
    """Where the reports as they are would halve the slopes."""
    rows, _, _ = collected(20_000, 3.0)
    exact = PrivateClassifier(epsilon=None, steps=200).fit(rows, "y", features=["x", "a"])
    assert slopes(exact) == pytest.approx(SLOPES, abs=0.35)
    assert exact.epsilon_ == math.inf
    private = PrivateClassifier(epsilon=3.0).fit(rows, "y", features=["x", "a"])
    assert slopes(private) == pytest.approx(SLOPES, abs=0.7)
    (level,) = private.account_.levels
    assert level.local == pytest.approx(9.0)
    assert level.model < level.local
    assert private.account_.spent == private.epsilon_ <= 3


def test_rows_name_their_features_and_bounds_scale_true_ones() -> None:
    rows, _, _ = collected(300, 2.0)
    known = {"feature_bounds": {"a": (0, 10)}, "categories": {"x": ["p", "q", "r"]}}
    model = PrivateClassifier(epsilon=None, steps=3, classes=["no", "yes"], **known)
    model.fit(rows, "y", features=["x", "a"])
    assert model.feature_names_in_.tolist() == ["x", "a"]
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict(pd.DataFrame({"x": ["p", "r"], "a": [0.5, 9]})).shape == (2,)
    everything = PrivateClassifier(epsilon=None, steps=1).fit(rows, "y")
    assert everything.feature_names_in_.tolist() == ["x", "a", "t"]
    with pytest.raises(InvalidInput, match="'x' has 3 values, got 2"):
        PrivateClassifier(epsilon=None, categories={"x": [1, 2]}).fit(rows, "y", features=["x"])
    with pytest.raises(InvalidInput, match="'y' has 2 values, got 3 classes"):
        PrivateClassifier(epsilon=None, classes=(0, 1, 2)).fit(rows, "y", features=["x"])
    with pytest.raises(InvalidInput, match="there is no attribute 'z'"):
        PrivateClassifier(epsilon=None).fit(rows, "y", features=["z"])
    for label, features in (("y", ["y"]), ("y", ["x", "x"]), ("y", []), ("y", "x"), (None, None)):
        with pytest.raises(InvalidInput, match="name what is to be learned, and each feature once"):
            PrivateClassifier(epsilon=None).fit(rows, label, features=features)


def test_too_many_combinations_of_answers_are_refused() -> None:
    rows, _, _ = collected(10, 2.0)
    more = Rows(10, rows.columns | {f"a{i}": rows.columns["a"] for i in range(4)})
    with pytest.raises(InvalidInput, match="19,683 combinations of answers, of 9 for each number"):
        PrivateClassifier(epsilon=None).fit(more, "y", features=["x", "a", "a0", "a1", "a2"])


def test_a_regression_on_rows_is_that_of_ordinary_statistics() -> None:
    """Of `hearsay ask fit`, to the last digits that a model keeps, and near that of the truth."""
    rows, x, a = collected(20_000, 2.0)
    model = PrivateRegressor(epsilon=None).fit(rows, "t", features=["x", "a"])
    found = np.append(model.module_[0].bias.detach(), model.module_[0].weight.detach()[0, 1:])
    asked = [rows.columns[name] for name in ("x", "a", "t")]
    records = Records([c.channels["only"] for c in asked], [c.codes for c in asked])
    columns = [(), (Indicator(0, 1),), (Indicator(0, 2),), (Number(1),)]
    fit = linear([records], Number(2), columns)
    assert found == pytest.approx(fit.value, rel=1e-4)
    design = np.stack([np.ones(len(x)), x == 1, x == 2, a], axis=1)
    truth = np.array([0, 0.2, -0.3, 0.5])
    assert (np.abs(found - truth) < 4 * fit.standard_error).all()
    expected = design[:5] @ found
    assert model.predict(pd.DataFrame({"x": x[:5], "a": a[:5]})) == pytest.approx(
        expected, abs=1e-5
    )


def test_a_regression_on_rows_is_released_once_with_noise_for_all_that_a_record_may_report() -> (
    None
):
    rows, _, _ = collected(20_000, 2.0)
    exact = PrivateRegressor(epsilon=None).fit(rows, "t", features=["x", "a"])
    model = PrivateRegressor(epsilon=1.0).fit(rows, "t", features=["x", "a"])
    weights = [each.module_[0].weight.detach().numpy() for each in (exact, model)]
    assert weights[1] == pytest.approx(weights[0], abs=0.2)
    assert (weights[1] != weights[0]).sum() == 3
    assert 0.999 < model.epsilon_ <= 1
    assert model.account_.levels[0].model < model.account_.levels[0].local
    assert model.history_ == [Progress(1, 1, model.epsilon_, None)]
    with pytest.raises(
        InvalidInput, match=r"one step with noise_multiplier 0\.5 exceeds epsilon 1"
    ):
        model.set_params(noise_multiplier=0.5).fit(rows, "t", features=["x", "a"])


@pytest.mark.parametrize("mechanism", ["krr", "oue", "subset", "hadamard", "policy"])
def test_no_report_moves_the_moments_beyond_their_bounds(mechanism: str) -> None:
    """Every code of a category with the two ends of the numbers; some reach each bound."""
    kinds = CATEGORICAL | {"policy": design(Policy.one_sided(3, [0], 1.0)).mechanism}
    category, number = kinds[mechanism], PiecewiseMechanism(1.0, grid=4)
    codes = every_code(category)
    ends = np.array([0, number.codes - 1, number.codes // 2])
    places = np.stack(np.meshgrid(np.arange(len(codes)), ends, ends), axis=-1).reshape(-1, 3)
    levels = np.zeros(len(places), dtype=np.int16)
    given = {"c": (category, codes[places[:, 0]]), "a": (number, places[:, 1])}
    given["t"] = number, places[:, 2]
    columns = {n: Column(v, levels, ("only",), {"only": m}) for n, (m, v) in given.items()}
    features = [Feature("c", values=tuple(range(category.parameters))), Feature("a")]
    found = moments(Rows(len(places), columns), "t", features)
    low, high = found.bounds
    assert found.vectors.min(0) == pytest.approx(low, abs=1e-9)
    assert found.vectors.max(0) == pytest.approx(high, abs=1e-9)


def test_regressions_that_rows_do_not_allow_are_refused() -> None:
    rows, _, _ = collected(50, 2.0)
    model = PrivateRegressor(epsilon=None)
    with pytest.raises(InvalidInput, match="'y' is no number: take PrivateClassifier"):
        model.fit(rows, "y")
    with pytest.raises(InvalidInput, match="a regression on Rows is linear"):
        PrivateRegressor(epsilon=None, hidden=(4,)).fit(rows, "t")
    bit = OneBitMean(1.0)
    codes, levels = bit.randomize_many(np.zeros(50), SeededCoins(1)), np.zeros(50, dtype=np.int16)
    coarse = Column(codes, levels, ("only",), {"only": bit})
    with pytest.raises(InvalidInput, match="tell nothing of a number's square"):
        model.fit(Rows(50, rows.columns | {"bit": coarse}), "t", features=["bit"])
    apart = np.arange(50) % 2 - 1
    columns = {"a": replace(rows.columns["a"], levels=apart)}
    columns["x"] = replace(rows.columns["x"], levels=-1 - apart)
    with pytest.raises(InvalidInput, match="no row has answers to all of t, x, a"):
        model.fit(Rows(50, rows.columns | columns), "t", features=["x", "a"])
    with pytest.raises(NotReady, match="too few to tell the features apart"):
        model.fit(collected(2, 2.0)[0], "t", features=["x", "a"])


def test_the_guide_to_estimators_runs_and_names_every_check_that_is_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    guide = GUIDE.read_text(encoding="utf-8").split("## By fit and predict\n")[1].split("\n## ")[0]
    (code,) = blocks(guide, "python")
    names: dict[str, Any] = {}
    exec(compile(code, "the guide", "exec"), names)
    assert "training: (2, 1e-06)-DP in rows" in capsys.readouterr().out
    for check in FORBIDDEN:
        assert f"`{check}`" in guide
    for kind in (PrivateClassifier, PrivateRegressor):
        for parameter in set(kind().get_params()) - {"coins"}:
            assert f"`{parameter}`" in guide, parameter
