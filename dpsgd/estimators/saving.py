"""A fitted estimator in a file: parameters, features, model, account and history, and no data."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpsgd.accounting import Relation
from dpsgd.estimators.base import PrivateEstimator
from dpsgd.estimators.classifier import PrivateClassifier
from dpsgd.estimators.features import Feature
from dpsgd.estimators.fitting import Progress
from dpsgd.estimators.regressor import PrivateRegressor
from dpsgd.reports.guarantees import Account, LevelGuarantee
from dpsgd.training import checkpoint
from ldp.errors import InvalidInput, StorageFailed

_KINDS = {kind.__name__: kind for kind in (PrivateClassifier, PrivateRegressor)}
_VERSION = 1


def save(model: PrivateEstimator, path: str | Path) -> None:
    """Write a fitted model with its account; a file that was there stays until this one is whole.

    Functions and modules among the parameters are left out. Raises `StorageFailed` where the file
    cannot be written, and scikit-learn's `NotFittedError` for a model that is not fitted.
    """
    check_is_fitted(model)
    account = model.account_
    document = {
        "version": _VERSION,
        "kind": type(model).__name__,
        "parameters": {
            name: _plain(value) for name, value in model.get_params().items() if _is_plain(value)
        },
        "features": [asdict(each) | {"values": _plain(each.values)} for each in model.features_],
        "named": hasattr(model, "feature_names_in_"),
        "classes": _plain(getattr(model, "classes_", None)),
        "module": model.module_.state_dict(),
        "noise_multiplier": model.noise_multiplier_,
        "account": asdict(account) | {"relation": account.relation and account.relation.value},
        "history": [asdict(each) for each in model.history_],
    }
    try:
        checkpoint.write(Path(path), document)
    except OSError as error:
        raise StorageFailed(f"cannot write {path}: {error}") from None


def load(path: str | Path, *, module: Any = None) -> PrivateClassifier | PrivateRegressor:
    """Return the model that `save` wrote; nothing in the file is run as code.

    `module` is the module, or function of the numbers of inputs and outputs, that the model was
    made with, where it was. Raises `InvalidInput` where there is no such file, and where it is of
    another form or module.
    """
    try:
        document = checkpoint.read(Path(path))
        if document["version"] != _VERSION:
            raise InvalidInput(
                f"{path} has version {document['version']!r}, this release reads {_VERSION}"
            )
        model = _KINDS[document["kind"]](**document["parameters"])
        model.module = module
        model.features_ = [Feature(**each) for each in document["features"]]
        model.n_features_in_ = len(model.features_)
        if document["named"]:
            model.feature_names_in_ = np.array([f.name for f in model.features_], dtype=object)
        if isinstance(model, PrivateClassifier):
            model.classes_ = np.array(document["classes"])
        outputs = len(document["classes"] or [None])
        model.module_ = model.built(sum(each.width for each in model.features_), outputs)
        model.module_.load_state_dict(document["module"])
        model.module_.eval()
        relation = document["account"].pop("relation")
        levels = tuple(LevelGuarantee(**each) for each in document["account"].pop("levels"))
        model.account_ = Account(
            relation=relation and Relation(relation), levels=levels, **document["account"]
        )
        model.epsilon_ = model.account_.spent
        model.noise_multiplier_ = document["noise_multiplier"]
        model.history_ = [Progress(**each) for each in document["history"]]
    except InvalidInput:
        raise
    except (OSError, RuntimeError) as error:
        raise InvalidInput(f"cannot read {path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{path} is no saved model: {error!r}") from None
    return model


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, [*value.keys(), *value.values()]))
    if isinstance(value, list | tuple | range | np.ndarray):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def _plain(value: Any) -> Any:
    """Return plain values in the types that are read without running code."""
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return tuple(map(_plain, value))
    return value
