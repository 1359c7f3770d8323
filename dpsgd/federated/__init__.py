"""Federated training: splits, local steps, rules that aggregate updates, and its privacy.

The rules, the server's optimizers and what needs noise alone load no torch: a server uses them.
"""

from typing import TYPE_CHECKING

from ldp.lazy import lazy

if TYPE_CHECKING:  # the same names, for type checkers
    from dpsgd.federated.attackers import ALittleIsEnough as ALittleIsEnough
    from dpsgd.federated.attackers import LabelFlip as LabelFlip
    from dpsgd.federated.attackers import SignFlip as SignFlip
    from dpsgd.federated.history import History as History
    from dpsgd.federated.history import Round as Round
    from dpsgd.federated.local import LocalSGD as LocalSGD
    from dpsgd.federated.local_updates import LocalUpdates as LocalUpdates
    from dpsgd.federated.record_level import RecordLevel as RecordLevel
    from dpsgd.federated.server_optimizers import SGD as SGD
    from dpsgd.federated.server_optimizers import Adam as Adam
    from dpsgd.federated.server_optimizers import Yogi as Yogi
    from dpsgd.federated.simulation import Accuracy as Accuracy
    from dpsgd.federated.simulation import Federation as Federation
    from dpsgd.federated.splits import dirichlet as dirichlet
    from dpsgd.federated.splits import iid as iid
    from dpsgd.federated.splits import shards as shards
    from dpsgd.federated.strategies import FedAdam as FedAdam
    from dpsgd.federated.strategies import FedAvg as FedAvg
    from dpsgd.federated.strategies import FedMedian as FedMedian
    from dpsgd.federated.strategies import FedTrimmedAvg as FedTrimmedAvg
    from dpsgd.federated.strategies import FedYogi as FedYogi
    from dpsgd.federated.strategies import GeometricMedian as GeometricMedian
    from dpsgd.federated.strategies import Krum as Krum
    from dpsgd.federated.strategies import MedianNorm as MedianNorm
    from dpsgd.federated.strategies import MultiKrum as MultiKrum
    from dpsgd.federated.user_level import ToeplitzFTRL as ToeplitzFTRL
    from dpsgd.federated.user_level import TreeFTRL as TreeFTRL
    from dpsgd.federated.user_level import UserLevel as UserLevel

__all__, __dir__, __getattr__ = lazy(
    __name__,
    {
        "dpsgd.federated.attackers": "ALittleIsEnough LabelFlip SignFlip",
        "dpsgd.federated.history": "History Round",
        "dpsgd.federated.local": "LocalSGD",
        "dpsgd.federated.local_updates": "LocalUpdates",
        "dpsgd.federated.record_level": "RecordLevel",
        "dpsgd.federated.server_optimizers": "SGD Adam Yogi",
        "dpsgd.federated.simulation": "Accuracy Federation",
        "dpsgd.federated.splits": "dirichlet iid shards",
        "dpsgd.federated.strategies": (
            "FedAdam FedAvg FedMedian FedTrimmedAvg FedYogi"
            " GeometricMedian Krum MedianNorm MultiKrum"
        ),
        "dpsgd.federated.user_level": "ToeplitzFTRL TreeFTRL UserLevel",
    },
    extra="train",
)
