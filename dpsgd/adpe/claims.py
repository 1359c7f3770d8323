"""What ADPE claims, and what its noise on the features of one record is worth.

The paper scales the noise of a feature for the mean of a batch, and adds it to each record. For the
mean that noise is right; a record's own noise is then |B| times too small, and each feature of a
record adds its own loss. So with importances alpha_j, a sensitivity s of the features, a batch of
|B| and the noise multiplier z_t of epoch t, one record's features have

    rho = sum_t |B|**2 sum_j alpha_j**2 / (2 s**2 z_t**2)         of Gaussian noise,
    epsilon = sum_t |B| sum_j alpha_j / (s z_t)                   of Laplace noise,

where the paper claims 1 / (2 z_t**2), or 1 / z_t, for the features and as much for the
coefficients of the loss. Labels have no bound at all: gradients of the layers below take each
record's own label. Both hold for features in [0, 1].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpsgd.accounting import NoSampling, Relation, ZCDPAccountant

MECHANISMS = ("gaussian", "laplace")


@dataclass(frozen=True)
class Claim:
    """A claimed epsilon, and the honest one of a record's features, both at `delta`.

    `rho` is the honest zCDP parameter, None for Laplace noise, whose figures hold at delta 0.
    Both epsilons come from rho by the paper's conversion, rho + 2 sqrt(rho ln(1 / delta)).
    """

    claimed: float
    honest: float
    rho: float | None
    delta: float

    def __str__(self) -> str:
        because = "" if self.rho is None else f" (rho {self.rho:.4g})"
        return (
            f"claimed epsilon {self.claimed:.3g}, honest epsilon {self.honest:.4g}{because} for "
            f"the features of one record at delta {self.delta:g}; labels have no bound"
        )


def multipliers(
    mechanism: str, epsilon: float, delta: float, relative: Sequence[float]
) -> list[float]:
    """Return the noise multiplier of each epoch with which the paper would claim `epsilon`.

    They are proportional to `relative`; features and coefficients have half of the budget each.
    """
    if mechanism == "laplace":
        scale = 2 * math.fsum(1 / each for each in relative) / epsilon
    else:
        log = math.log(1 / delta)
        rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
        scale = math.sqrt(math.fsum(each**-2 for each in relative) / rho)
    return [scale * each for each in relative]


def claim(
    mechanism: str,
    noise: Sequence[float],
    *,
    delta: float,
    batch_size: int,
    sensitivity: float,
    importance: Sequence[float],
    shared: bool = False,
) -> Claim:
    """Return what these epochs claim and are worth; see the module.

    With `shared`, one draw serves all records of a batch: the difference of two records is then
    exact, and nothing bounds what is told of one of them.
    """
    if mechanism == "laplace":
        per_unit = math.fsum(importance) * batch_size / sensitivity
        spent = math.fsum(1 / each for each in noise)
        return Claim(2 * spent, math.inf if shared else per_unit * spent, None, 0.0)
    per_unit = math.fsum(each**2 for each in importance) * (batch_size / sensitivity) ** 2
    spent = math.fsum(each**-2 / 2 for each in noise)
    rho = math.inf if shared else per_unit * spent
    return Claim(_epsilon(2 * spent, delta), _epsilon(rho, delta), rho, delta)


def _epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of rho-zCDP at a delta, as the paper converts."""
    if math.isinf(rho):
        return rho
    accountant = ZCDPAccountant(Relation.REPLACE_SPECIAL)
    accountant.step(noise_multiplier=1 / math.sqrt(2 * rho), sampling=NoSampling())
    return accountant.get_epsilon(delta)
