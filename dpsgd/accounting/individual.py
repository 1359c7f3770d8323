"""Individual accounts: what each record spent, given the norms that its gradients had."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsgd.accounting.events import Event, Relation, Sampling, check_delta, check_positive
from dpsgd.accounting.renyi import divergence
from ldp import InvalidInput

_EXCESSES = np.geomspace(1e-3, 1e4, 300)
_LEVELS = 40
"""The shares of the clip norm, in equal parts, to which gradients are rounded up."""


def individual_epsilons(
    norms: ArrayLike,
    *,
    max_grad_norm: float,
    noise_multiplier: float,
    sampling: Sampling,
    steps: int,
    delta: float,
) -> NDArray[np.float64]:
    """Return an epsilon at `delta` for each record, shape (records,), for adding or removing it.

    `norms`, shape (checkpoints, records), has the norms of each record's gradient before clipping.
    Each row stands for its equal share of the `steps`, whether the record was drawn in them or not.

    - The epsilons depend on the data, and are private themselves: nothing covers their release.
    - With a row for every step, they are the account of the models that this run went through
      (output-specific individual DP), not of all that it might have. A guarantee in advance takes
      norms that were bounded in advance, or a filter.
    - With fewer rows they are estimates: no norm is known between them.

    Norms are rounded up to 40ths of max_grad_norm. Cost: up to a second for 12,000 divergences, and
    as many products for each record. Raises `InvalidInput` for norms that are not finite and >= 0,
    for more rows than steps, and as `Event` does, under ADD_REMOVE.
    Source: Feldman and Zrnic, "Individual privacy accounting via a Rényi filter", NeurIPS 2021;
    Yu, Kamath, Kulkarni, Liu, Yin and Zhang, "Individual privacy accounting for differentially
    private stochastic gradient descent", TMLR 2023, which names the output-specific kind.
    """
    check_delta(delta)
    check_positive("max_grad_norm", max_grad_norm)
    run = Event(noise_multiplier, sampling, steps)
    run.check_relation(Relation.ADD_REMOVE)
    rows = np.array(norms, dtype=float, ndmin=2)
    if rows.ndim != 2 or not (np.isfinite(rows) & (rows >= 0)).all() or len(rows) > run.steps:
        raise InvalidInput(
            "norms must be finite and >= 0, with a row for each of at most `steps` checkpoints, "
            f"got shape {rows.shape} for {run.steps} steps"
        )
    levels = np.ceil(np.minimum(rows / max_grad_norm, 1) * _LEVELS).astype(np.intp)
    shares = np.diff(np.linspace(0, run.steps, len(rows) + 1).round())
    counts = np.zeros((rows.shape[1], _LEVELS + 1))
    np.add.at(counts, (np.arange(rows.shape[1]), levels), shares[:, np.newaxis])
    spent = np.zeros((_LEVELS + 1, len(_EXCESSES)))
    for level in np.flatnonzero(counts.any(axis=0)):
        if level and sampling.rate:
            event = Event(noise_multiplier * _LEVELS / level, sampling, 1)
            spent[level] = [divergence(event, Relation.ADD_REMOVE, x) for x in _EXCESSES]
    least = np.log(_EXCESSES / (1 + _EXCESSES)) - np.log(delta * (1 + _EXCESSES)) / _EXCESSES
    found: NDArray[np.float64] = np.maximum((counts @ spent + least).min(axis=1), 0)
    return np.where(counts[:, 1:].any(axis=1), found, 0)
