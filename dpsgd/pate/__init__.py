"""PATE: a student learns from the noisy votes of teachers, each trained on records of its own.

Private Aggregation of Teacher Ensembles. It needs no torch: a teacher is anything that votes.
"""

from dpsgd.pate.aggregators import ConfidentGNMax, GNMax
from dpsgd.pate.secret import PrivateEpsilon
from dpsgd.pate.votes import count_votes, partition

__all__ = [
    "ConfidentGNMax",
    "GNMax",
    "PrivateEpsilon",
    "count_votes",
    "partition",
]


def __dir__() -> list[str]:
    return sorted(__all__)
