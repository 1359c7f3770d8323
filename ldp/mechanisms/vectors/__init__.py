"""Vectors of a bounded norm, such as updates of a model: for trainings, not for surveys.

`ldp` imports this package when one of its names is first used: an app without a training does not.
"""

from collections.abc import Mapping, Sequence

from ldp.errors import InvalidInput
from ldp.mechanisms.vectors.sphere_codebook import SphereCodebook

__all__ = ["SphereCodebook", "build_vector"]

VECTORS: Mapping[str, type[SphereCodebook]] = {"sphere_codebook": SphereCodebook}
"""Randomizers of updates that a training may declare, by name. No plan of a survey has them."""


def build_vector(
    name: str, epsilon: float, integers: Mapping[str, Sequence[int]]
) -> SphereCodebook:
    """Build a randomizer of updates from its name, epsilon and integers in a training.

    Raises `InvalidInput` for an unknown name, and where the integers do not keep epsilon.
    """
    if name not in VECTORS:
        raise InvalidInput(f"unknown mechanism {name!r}; a training knows {list(VECTORS)}")
    return VECTORS[name].from_integers(epsilon, integers)
