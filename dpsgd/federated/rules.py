"""Rules that make one update of a model from the updates of many devices.

`mean` sums a stream. All others compare the updates one by one, bear some hostile ones among them,
and need them all at once, as an array of shape (m, d) or as m vectors of length d. What they use
beside that is bounded, whatever d: blocks of columns are worked on one after another. They count
all updates alike, and only the server that can read each update can use them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import check_integer
from ldp import InvalidInput

Vector = NDArray[np.float32]
Updates = NDArray[np.float32] | Sequence[Vector]
Update = NDArray[np.float64]

_BLOCK = 2**21
"""How many values are worked on at once: 8 MiB in float32, and 16 MiB in float64."""
_TOGETHER = 16
"""How many vectors `mean` adds in float32, which is quick, before it adds to float64."""
_WEISZFELD = 8
"""How many steps the geometric median makes from the median."""


def mean(updates: Iterable[Vector], weights: Sequence[float] | None = None) -> Update:
    """Return the mean of a stream of vectors, each of shape (d,), by their weights or equally.

    The vectors are read once, and three of length d are kept. Raises `InvalidInput` where there is
    none, where lengths differ, where a sum is not finite, and unless there is one finite weight
    >= 0 for each update and they have a sum > 0.
    Source: McMahan et al., "Communication-efficient learning of deep networks from decentralized
    data", AISTATS 2017, algorithm 1 (the weights are the clients' numbers of records).
    """
    shares = None if weights is None else _shares(weights)
    total: Update | None = None
    n = 0
    for n, update in enumerate(updates, 1):
        if total is None:
            total = np.zeros(_length(update, None))
            part, scaled = np.zeros((2, total.size), np.float32)
        _length(update, total.size)
        if shares is not None:
            if n > shares.size:
                raise InvalidInput(f"there are {shares.size} weights, and more updates")
            update = np.multiply(update, shares[n - 1], out=scaled, casting="same_kind")
        with np.errstate(over="ignore", invalid="ignore"):  # is found at the end
            np.add(part, update, out=part, casting="same_kind")
        if n % _TOGETHER == 0:
            total += part
            part[:] = 0
    if total is None:
        raise InvalidInput("there must be at least 1 update, got none")
    if shares is not None and n < shares.size:
        raise InvalidInput(f"there are {shares.size} weights for {n} updates")
    total += part
    if not np.isfinite(total).all():  # sums keep every nan and infinity
        raise InvalidInput("the updates must be finite, and their sums in float32; some are not")
    return total / n if shares is None else total


def median(updates: Updates) -> Update:
    """Return the median of each coordinate; of an even number the mean of the middle two.

    Less than half of the updates can be hostile. Takes O(m d).
    Source: Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards
    optimal statistical rates", ICML 2018, definition 1.
    """
    return _trimmed(updates, (check_updates(updates) - 1) // 2)


def trimmed_mean(updates: Updates, hostile: int) -> Update:
    """Return the mean of each coordinate without its `hostile` largest and smallest values.

    Raises `InvalidInput` unless there are more than 2 * hostile updates. Takes O(m d).
    Source: Yin et al., ICML 2018, definition 2.
    """
    check_rule("trimmed_mean", check_updates(updates), hostile)
    return _trimmed(updates, hostile)


def krum(updates: Updates, hostile: int) -> Update:
    """Return the update with the least sum of squared distances to its m - hostile - 2 nearest.

    Of several the first. Raises `InvalidInput` unless there are more than 2 * hostile + 2 updates.
    Takes O(m^2 d), and m^2 floats.
    Source: Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine learning with adversaries:
    Byzantine tolerant gradient descent", NeurIPS 2017, section 4.
    """
    check_rule("krum", check_updates(updates), hostile)
    return updates[int(np.argmin(_krum_scores(updates, hostile)))].astype(np.float64)


def multi_krum(updates: Updates, hostile: int) -> Update:
    """Return the mean of the m - hostile updates that `krum` scores best.

    Raises and takes what `krum` does.
    Source: Blanchard et al., NeurIPS 2017, section 6.
    """
    check_rule("multi_krum", m := check_updates(updates), hostile)
    best = np.sort(np.argsort(_krum_scores(updates, hostile), kind="stable")[: m - hostile])
    return mean(updates[i] for i in best)


def geometric_median(updates: Updates) -> Update:
    """Return nearly the point with the least sum of distances to the updates.

    Eight steps of Weiszfeld's are made from the median of each coordinate; distances below a
    millionth of the mean distance count as that. Less than half of the updates can be hostile.
    Takes O(m d).
    Source: Pillutla, Kakade and Harchaoui, "Robust aggregation for federated learning", IEEE
    Transactions on Signal Processing 2022, algorithm 2 (equal weights).
    """
    point = median(updates)
    for _ in range(_WEISZFELD):
        distances = np.sqrt(_squares(updates, point))
        least = 1e-6 * distances.mean()
        if least == 0:
            break  # all updates are the same
        weights = 1 / np.maximum(distances, least)
        point = _weighted(updates, weights / weights.sum())
    return point


def median_norm(updates: Updates) -> Update:
    """Return the mean of the updates, each first scaled down to the median of their L2 norms.

    A hostile update moves the mean by at most twice that norm over m. Takes O(m d).
    """
    m = check_updates(updates)
    norms = np.sqrt(_squares(updates, None))
    bound = float(np.median(norms))
    return _weighted(updates, np.minimum(1, bound / np.maximum(norms, bound or 1)) / m)


Rule = Callable[[Updates, int], Update]

RULES: Mapping[str, Rule] = {
    "mean": lambda updates, _: mean(updates),
    "median": lambda updates, _: median(updates),
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "multi_krum": multi_krum,
    "geometric_median": lambda updates, _: geometric_median(updates),
    "median_norm": lambda updates, _: median_norm(updates),
}
"""By the name in a training: the rule of the updates, and of how many may be hostile."""

_LEAST: Mapping[str, Callable[[int], int]] = {
    "trimmed_mean": lambda hostile: 2 * hostile + 1,
    "krum": lambda hostile: 2 * hostile + 3,
    "multi_krum": lambda hostile: 2 * hostile + 3,
}
"""The least number of updates of the rules that need to know how many may be hostile."""


def check_rule(rule: str, updates: int, hostile: int) -> None:
    """Raise `InvalidInput` unless a rule can be used on so many updates, of which some are hostile.

    `hostile` must be 0 for the rules that do not need it.
    """
    if rule not in RULES:
        raise InvalidInput(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    check_integer("updates", updates, 1)
    check_integer("hostile", hostile, 0)
    if rule not in _LEAST:
        if hostile:
            raise InvalidInput(f"{rule} needs no number of hostile updates, got {hostile}")
    elif updates < (least := _LEAST[rule](hostile)):
        raise InvalidInput(
            f"{rule} with {hostile} hostile updates needs at least {least} updates, got {updates}"
        )


def check_updates(updates: Updates) -> int:
    """Return how many updates there are; raise `InvalidInput` naming the first that is wrong.

    There must be at least one, all of them float vectors of one length, with finite values.
    """
    if len(updates) == 0:
        raise InvalidInput("there must be at least 1 update, got none")
    length = None
    for i, update in enumerate(updates):
        length = _length(update, length, i)
        if not np.isfinite(update).all():
            raise InvalidInput(f"update {i} has nan or inf")
    return len(updates)


def _length(update: Vector, expected: int | None, place: int | None = None) -> int:
    """Return the length of a vector; refuse anything else, and any length but the expected."""
    name = "an update" if place is None else f"update {place}"
    if not isinstance(update, np.ndarray) or update.ndim != 1 or update.dtype.kind != "f":
        given = getattr(update, "shape", type(update).__name__)
        raise InvalidInput(f"{name} must be a vector of floats, got {given}")
    if update.size == 0 or expected not in (None, update.size):
        raise InvalidInput(f"{name} must have {expected or '1 or more'} values, got {update.size}")
    return int(update.size)


def _shares(weights: Sequence[float]) -> NDArray[np.float32]:
    """Return the weights over their sum."""
    given = np.asarray(weights, np.float64)
    if given.ndim != 1 or not (np.isfinite(given).all() and (given >= 0).all() and given.any()):
        raise InvalidInput("weights must be finite and >= 0, with a sum > 0")
    shares: NDArray[np.float32] = (given / given.sum()).astype(np.float32)
    return shares


def _blocks(updates: Updates) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield the updates in blocks of columns, each an array (m, columns) that is a copy."""
    d = updates[0].size
    width = max(1, _BLOCK // len(updates))
    for start in range(0, d, width):
        place = slice(start, start + width)
        if isinstance(updates, np.ndarray):
            yield place, updates[:, place].copy()
        else:
            yield place, np.stack([update[place] for update in updates])


def _trimmed(updates: Updates, cut: int) -> Update:
    """Return the mean of each coordinate without its `cut` largest and smallest values."""
    found = np.empty(updates[0].size)
    last = len(updates) - cut - 1
    for place, block in _blocks(updates):
        block.partition(sorted({cut, last}), axis=0)
        block[cut : last + 1].mean(axis=0, dtype=np.float64, out=found[place])
    return found


def _squares(updates: Updates, point: Update | None) -> NDArray[np.float64]:
    """Return the squared distance of each update from a point, or from zero, shape (m,)."""
    found = np.zeros(len(updates))
    for place, block in _blocks(updates):
        wide = block.astype(np.float64)
        if point is not None:
            wide -= point[place]
        found += np.einsum("ij,ij->i", wide, wide)
    return found


def _weighted(updates: Updates, weights: NDArray[np.float64]) -> Update:
    found = np.empty(updates[0].size)
    for place, block in _blocks(updates):
        np.matmul(weights, block.astype(np.float64), out=found[place])
    return found


def _krum_scores(updates: Updates, hostile: int) -> NDArray[np.float64]:
    """Return each update's sum of squared distances to its m - hostile - 2 nearest others."""
    m = len(updates)
    products = np.zeros((m, m))
    for _, block in _blocks(updates):
        wide = block.astype(np.float64)
        wide -= wide.mean(axis=0)  # so that the products are as small as the distances
        products += wide @ wide.T
    own = np.diag(products)
    distances = np.maximum(own[:, None] + own - 2 * products, 0)
    np.fill_diagonal(distances, np.inf)  # an update is no neighbour of itself
    nearest = m - hostile - 2
    distances.partition(nearest - 1, axis=1)
    nearby: NDArray[np.float64] = distances[:, :nearest].sum(axis=1)
    return nearby
