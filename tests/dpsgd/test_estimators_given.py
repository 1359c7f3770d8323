"""Whatever an estimator is given, it learns from it or refuses it in words."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dpsgd.estimators import PrivateClassifier, PrivateRegressor
from dpsgd.estimators.base import PrivateEstimator
from ldp import InvalidInput

N = 40
NUMBERS = np.linspace(-1, 1, N)
LABELS = (NUMBERS > 0).astype(int)
X = np.stack([NUMBERS, NUMBERS**2], axis=1)

VALUES: dict[str, Any] = {
    "NA": pd.NA,
    "NaT": pd.NaT,
    "text": "3",
    "bytes": b"3",
    "complex": 1j,
    "nan": float("nan"),
    "huge": 10**5000,
    "object": object(),
    "array": np.array([1, 2]),
}
PARAMETERS = [
    *("epsilon", "delta", "steps", "batch_size", "max_grad_norm", "noise_multiplier"),
    *("learning_rate", "optimizer", "hidden", "module", "feature_bounds", "categories"),
    *("standardize", "max_physical_batch_size", "accountant", "on_progress", "coins"),
]


def model_of(kind: type[PrivateEstimator], **given: Any) -> Any:
    usual: dict[str, Any] = {"classes": [0, 1]} if kind is PrivateClassifier else {}
    return kind(**{"steps": 1, **usual, **given})


@pytest.mark.parametrize("name", [*PARAMETERS, "random_state", "classes", "target_bounds"])
def test_a_parameter_that_cannot_be_is_refused_by_name(name: str) -> None:
    kind: type[PrivateEstimator] = PrivateRegressor if "target" in name else PrivateClassifier
    for value in VALUES.values():
        if (
            name in ("feature_bounds", "target_bounds", "classes", "hidden")
            and value is VALUES["array"]
        ):
            continue
        with pytest.raises(InvalidInput, match=rf"{name}|cannot be used to seed|Seed must be"):
            model_of(kind, **{name: value}).fit(X, LABELS)


@pytest.mark.parametrize("epsilon", ["3", b"3", 1j, [3], True, pd.NA, 10**400])
def test_an_epsilon_that_is_no_number_is_refused(epsilon: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^epsilon must be a number, or None, got "):
        model_of(PrivateClassifier, epsilon=epsilon).fit(X, LABELS)


def missing(values: Any, what: Any) -> Any:
    found = np.array(values, dtype=object)
    found[3] = what
    return found


TEXTS = np.where(LABELS, "a", "b")
COLUMNS: dict[str, Any] = {
    "text with NA": missing(TEXTS, pd.NA),
    "strings with NA": pd.array(missing(TEXTS, pd.NA), dtype="string"),
    "numbers with NA": missing(NUMBERS, pd.NA),
    "Int64 with NA": pd.array(missing(LABELS, pd.NA), dtype="Int64"),
    "boolean with NA": pd.array(missing(LABELS > 0, pd.NA), dtype="boolean"),
    "text": TEXTS,
    "numbers with nan": np.where(NUMBERS > 0, np.nan, NUMBERS),
    "times": pd.date_range("2026", periods=N),
    "times in a zone": pd.date_range("2026", periods=N, tz="UTC"),
    "durations": pd.to_timedelta(range(N), unit="D"),
    "periods": pd.period_range("2026", periods=N, freq="D"),
    "intervals": pd.interval_range(0, N, N),
    "complex": NUMBERS + 1j,
    "lists": pd.Series([[1]] * N),
    "huge": missing(NUMBERS, 10**400),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_columns_without_numbers_are_refused(kind: type[PrivateEstimator], name: str) -> None:
    frame = pd.DataFrame({"number": NUMBERS, "other": COLUMNS[name]})
    with pytest.raises(InvalidInput):
        model_of(kind).fit(frame, LABELS)
    with pytest.raises(InvalidInput):
        model_of(kind).fit(X, pd.Series(COLUMNS[name]))
    with pytest.raises(InvalidInput):
        model_of(kind).fit(frame[["number"]], LABELS, validation_data=(frame, LABELS))
    fitted = model_of(kind).fit(pd.DataFrame({"number": NUMBERS, "other": NUMBERS}), LABELS)
    with pytest.raises(InvalidInput):
        fitted.predict(frame)


def test_masked_values_are_not_learned_from() -> None:
    masked = np.ma.masked_array(X, mask=X > 0.5)
    for given, labels in ((masked, LABELS), (X, np.ma.masked_array(LABELS, mask=LABELS))):
        with pytest.raises(InvalidInput, match="masked values"):
            model_of(PrivateClassifier).fit(given, labels)
    fitted = model_of(PrivateClassifier).fit(np.ma.masked_array(X), LABELS)
    with pytest.raises(InvalidInput, match="masked values"):
        fitted.predict(masked)


@pytest.mark.parametrize("what", [pd.NA, None, float("nan")])
def test_a_frame_of_a_number_and_a_text_with_a_missing_value(what: object) -> None:
    frame = pd.DataFrame({"number": NUMBERS, "text": missing(TEXTS, what)})
    for categories in (None, {"text": ["a", "b"]}):
        try:
            model_of(PrivateClassifier, categories=categories).fit(frame, LABELS)
        except InvalidInput as error:
            assert str(error)
        else:
            assert categories and what is not pd.NA  # it is none of the categories


@pytest.mark.filterwarnings("ignore:pandas.DataFrame with sparse columns")
@pytest.mark.parametrize(
    "column",
    [
        pd.array(LABELS, dtype="Int64"),
        pd.array(LABELS > 0, dtype="boolean"),
        pd.array(NUMBERS, dtype="Float64"),
        pd.arrays.SparseArray(NUMBERS),
        pd.Categorical(LABELS),
        LABELS > 0,
    ],
    ids=lambda column: str(column.dtype),
)
def test_columns_of_numbers_of_any_kind_are_learned_from(column: Any) -> None:
    frame = pd.DataFrame({"number": NUMBERS, "other": column})
    assert model_of(PrivateClassifier).fit(frame, LABELS).predict(frame).shape == (N,)


@pytest.mark.parametrize("given", [3, (X,), (X, LABELS, 1), "ab1"])
def test_validation_data_are_a_pair(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^validation_data must be \(X, y\)"):
        model_of(PrivateClassifier).fit(X, LABELS, validation_data=given)


def test_a_sparse_matrix_is_refused() -> None:
    with pytest.raises(InvalidInput, match="dense data"):
        model_of(PrivateClassifier).fit(sparse.csr_matrix(X), LABELS)
