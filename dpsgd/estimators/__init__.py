"""Private models with scikit-learn's interface, on arrays, data frames and randomised rows."""

from ldp.errors import needs

with needs("dpsgd.estimators", "train"):
    from dpsgd.estimators.classifier import PrivateClassifier
    from dpsgd.estimators.fitting import Progress
    from dpsgd.estimators.regressor import PrivateRegressor
    from dpsgd.estimators.saving import load, save

__all__ = ["PrivateClassifier", "PrivateRegressor", "Progress", "load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
