"""Federated training: splits, local steps, rules that aggregate updates, and its privacy.

The rules, the server's optimizers and what needs noise alone load no torch: a server uses them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ldp.errors import needs

if TYPE_CHECKING:
    from dpsgd.federated.attackers import ALittleIsEnough, LabelFlip, SignFlip
    from dpsgd.federated.history import History, Round
    from dpsgd.federated.local import LocalSGD
    from dpsgd.federated.local_updates import LocalUpdates
    from dpsgd.federated.record_level import RecordLevel
    from dpsgd.federated.server_optimizers import SGD, Adam, Yogi
    from dpsgd.federated.simulation import Accuracy, Federation
    from dpsgd.federated.splits import dirichlet, iid, shards
    from dpsgd.federated.strategies import (
        FedAdam,
        FedAvg,
        FedMedian,
        FedTrimmedAvg,
        FedYogi,
        GeometricMedian,
        Krum,
        MedianNorm,
        MultiKrum,
    )
    from dpsgd.federated.user_level import ToeplitzFTRL, TreeFTRL, UserLevel

_NAMES = {
    "attackers": "ALittleIsEnough LabelFlip SignFlip",
    "history": "History Round",
    "local": "LocalSGD",
    "local_updates": "LocalUpdates",
    "privacy": "ToeplitzFTRL TreeFTRL UserLevel",
    "record_level": "RecordLevel",
    "server_optimizers": "SGD Adam Yogi",
    "simulation": "Accuracy Federation",
    "splits": "dirichlet iid shards",
    "strategies": (
        "FedAdam FedAvg FedMedian FedTrimmedAvg FedYogi GeometricMedian Krum MedianNorm MultiKrum"
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = [
    "SGD",
    "ALittleIsEnough",
    "Accuracy",
    "Adam",
    "FedAdam",
    "FedAvg",
    "FedMedian",
    "FedTrimmedAvg",
    "FedYogi",
    "Federation",
    "GeometricMedian",
    "History",
    "Krum",
    "LabelFlip",
    "LocalSGD",
    "LocalUpdates",
    "MedianNorm",
    "MultiKrum",
    "RecordLevel",
    "Round",
    "SignFlip",
    "ToeplitzFTRL",
    "TreeFTRL",
    "UserLevel",
    "Yogi",
    "dirichlet",
    "iid",
    "shards",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        with needs(f"dpsgd.federated.{name}", "train"):
            return getattr(import_module(f"dpsgd.federated.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
