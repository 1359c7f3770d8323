"""Logistic regression on categories by maximum likelihood of the codes that came."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ldp.core.estimator import MAX_MATRIX
from ldp.core.mechanism import Categorical, Counted
from ldp.errors import InvalidInput, NotReady
from ldp.estimating.logistic import Cells, naive_fit
from ldp.estimating.regression import Fit, Indicator, Number, Product, Records, checked

Floats = NDArray[np.float64]

_EM_STEPS, _STEPS = 30, 100

_ENOUGH = 1e-9
"""The gain in nats of another step at which steps end."""

_FAR = 15.0
"""Log-odds of a cell beyond which the likelihood is flat: it grows on towards infinity."""

_FLAT = 1e-9
"""The least share of the information without noise that the codes have of every coefficient."""


@dataclass(frozen=True, eq=False)
class _Counted:
    """Counts of the combinations of codes, shape (codes,), and their channel, (cells, codes)."""

    channel: Floats
    counts: Floats


def forward(records: Sequence[Records], response: Indicator, columns: Sequence[Product]) -> Fit:
    """Fit P(response) = 1 / (1 + exp(-x b)) by the likelihood of the codes, of all levels together.

    The parameters are b and the shares P(x) of the regressors' cells, which are unknown: a code
    combination has the probability sum over the cells P(x) P(y | x; b) Q(codes | y, x). Some steps
    of expectation and maximisation are followed by Fisher's scoring; the covariance of b is its
    part of the inverse of Fisher's information. All levels are taken for samples of one
    population. In a saturated model it has the precision of `logistic`; it differs in that shares
    are never negative.

    Raises `InvalidInput` as `logistic`, where a tally does not count codes, where the response has
    more than two values, and for more cells times codes than `MAX_MATRIX`; `NotReady` where columns
    say the same, and where there is no maximum: the likelihood grows on as coefficients go to
    infinity, or the codes tell nothing of some of them. Cost: O(levels cells**2 codes) a step.
    """
    if any(isinstance(variable, Number) for column in columns for variable in column):
        raise InvalidInput("a logistic regression is on categories: collect the number in bins")
    given = checked(records, response, columns)
    cells = Cells(given[0], columns)
    counted = [_table(own, response, cells) for own in given]
    x, p = cells.design, len(columns)
    if np.linalg.matrix_rank(x) < p:
        raise NotReady("some columns of this model say the same: leave some out")
    n = sum(own.n for own in given)
    value, shares = np.zeros(p), np.full(len(x), 1 / len(x))
    for _ in range(_EM_STEPS):
        value, shares = _em_step(counted, x, value, shares)
    logits = np.log(np.maximum(shares, 1e-8))
    now = _likelihood(counted, _cells(x, value, logits))
    for _ in range(_STEPS):
        score, information = _score(counted, x, value, logits)
        step = _solved(information, score)
        gain, size = float(step @ score), 1.0
        while size > 1e-6:
            tried = value + size * step[:p], logits + size * np.append(0.0, step[p:])
            then = _likelihood(counted, _cells(x, *tried))
            if then >= now - 1e-12 * abs(now):
                break
            size /= 2
        value, logits, now = *tried, then
        if np.abs(x @ value).max() > _FAR:
            break
        if gain < _ENOUGH:
            inverse = _inverse(counted, x, value, logits)
            if inverse is None:
                break
            most = max(own.repeats.factor for own in given)
            method = "forward" if len(given) == 1 else "forward, pooled"
            naive = naive_fit(given, response, columns)
            return Fit(value, most * inverse, n, method, naive)
    raise NotReady(
        f"the likelihood of this logistic regression has no maximum in {n} randomised records: "
        "collect more, or leave columns out"
    )


def _inverse(
    counted: Sequence[_Counted], x: Floats, value: Floats, logits: Floats
) -> Floats | None:
    """Return b's part of the inverse of Fisher's information; None where it has none.

    That is where the information of b that is left beside the unknown shares is, in some
    direction, next to nothing of the one that the true answers would have.
    """
    _, information = _score(counted, x, value, logits)
    without, with_it = _cells(x, value, logits).reshape(2, -1)
    n = sum(float(own.counts.sum()) for own in counted)
    spread = without * with_it / np.maximum(without + with_it, np.finfo(float).tiny)
    exact = n * (x.T * spread) @ x
    p, known = value.size, np.diag(information) > 0  # a share may be so small as to count for 0
    scale = 1 / np.sqrt(np.where(known, np.diag(information), 1))
    scaled = (information * np.outer(scale, scale))[np.ix_(known, known)]
    own = 1 / np.sqrt(np.maximum(np.diag(exact), np.finfo(float).tiny))
    if not known[:p].all():
        return None
    try:
        root = np.linalg.inv(np.linalg.cholesky(exact * np.outer(own, own))) * own
        left = scaled[:p, :p] - scaled[:p, p:] @ np.linalg.solve(scaled[p:, p:], scaled[p:, :p])
        left /= np.outer(scale[:p], scale[:p])
        if np.linalg.eigvalsh(root @ left @ root.T).min() < _FLAT:
            return None
        found = np.linalg.inv(left)
    except np.linalg.LinAlgError:
        return None
    return np.asarray((found + found.T) / 2)


def _table(records: Records, response: Indicator, cells: Cells) -> _Counted:
    """Return the counts of the codes of the response and the regressors, and their channel."""
    places = [response.place, *cells.places]
    mechanisms = [records.mechanisms[place] for place in places]
    matrices = []
    for mechanism in mechanisms:
        matrix = mechanism.matrix() if isinstance(mechanism, Categorical) else None
        if matrix is None or not isinstance(mechanism, Counted):
            raise InvalidInput(
                f"the likelihood of {mechanism.name} reports cannot be had of their counts: fit by "
                "the corrected score"
            )
        matrices.append(matrix)
    if len(matrices[0]) != 2:
        raise InvalidInput(
            f"maximum likelihood explains one of two values, got {len(matrices[0])}: fit by the "
            "corrected score"
        )
    sizes = [m.tally_size for m in mechanisms]
    if prod(sizes) * 2 * len(cells.design) > MAX_MATRIX:
        raise InvalidInput(
            f"{2 * len(cells.design)} cells of {prod(sizes)} combinations of codes are too many "
            "for maximum likelihood: fit by the corrected score"
        )
    if response.value == 0:  # the cells are of the other value, then of this one
        matrices[0] = matrices[0][::-1]
    codes = [records.codes[place].astype(np.intp) for place in places]
    counts = np.bincount(np.ravel_multi_index(codes, sizes), minlength=prod(sizes))
    channel = matrices[0]
    for matrix in matrices[1:]:
        channel = np.asarray(np.kron(channel, matrix), dtype=np.float64)
    return _Counted(channel, counts.astype(float))


def _cells(x: Floats, value: Floats, logits: Floats) -> Floats:
    """Return the probabilities of the cells: those without the response, then those with it."""
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    chance = expit(x @ value)
    return np.concatenate([shares * (1 - chance), shares * chance])


def _likelihood(counted: Sequence[_Counted], cells: Floats) -> float:
    """Return the log-likelihood."""
    total = 0.0
    for own in counted:
        seen = own.counts > 0
        total += float(own.counts[seen] @ np.log((cells @ own.channel)[seen]))
    return total


def _em_step(
    counted: Sequence[_Counted], x: Floats, value: Floats, shares: Floats
) -> tuple[Floats, Floats]:
    """Return the parameters after one step of expectation and maximisation."""
    cells = _cells(x, value, np.log(np.maximum(shares, 1e-300)))
    expected = np.zeros_like(cells)
    for own in counted:
        expected += cells * (own.channel @ (own.counts / (cells @ own.channel)))
    without, with_it = expected.reshape(2, -1)
    weight = without + with_it
    chance = expit(x @ value)
    slope = (x.T * (weight * chance * (1 - chance))) @ x
    value = value + _solved(slope, x.T @ (with_it - weight * chance))
    return value, weight / weight.sum()


def _score(
    counted: Sequence[_Counted], x: Floats, value: Floats, logits: Floats
) -> tuple[Floats, Floats]:
    """Return the score and Fisher's information of b, and of the logits but the first."""
    cells = _cells(x, value, logits)
    count = len(x)
    shares = cells[:count] + cells[count:]
    chance = expit(x @ value)
    residual = np.concatenate([-chance, 1 - chance])
    both = np.concatenate([x, x])
    by_logits = np.concatenate([np.eye(count), np.eye(count)]) - shares
    slope = cells[:, None] * np.concatenate([residual[:, None] * both, by_logits[:, 1:]], axis=1)
    score = np.zeros(slope.shape[1])
    information = np.zeros((slope.shape[1],) * 2)
    for own in counted:
        output = cells @ own.channel
        n = own.counts.sum()
        moved = slope.T @ own.channel
        score += moved @ (own.counts / output)
        information += n * (moved / output) @ moved.T
    return score, information


def _solved(matrix: Floats, right: Floats) -> Floats:
    """Solve equations of a matrix that may be nearly singular, as where a cell is empty."""
    ridge = 1e-12 * np.trace(matrix) / len(matrix)
    return np.asarray(np.linalg.solve(matrix + ridge * np.eye(len(matrix)), right))
