"""How the records of one data set are dealt out to clients, each record to exactly one of them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsgd.accounting.events import check_integer, check_positive
from ldp import InvalidInput

Split = list[NDArray[np.int64]]
"""For each client the places of its records, in increasing order."""

_ATTEMPTS = 1000


def iid(labels: ArrayLike, clients: int, *, rng: np.random.Generator) -> Split:
    """Deal out all records at random; the clients' numbers of records differ by one at most.

    `labels` has shape (n,). Raises `InvalidInput` unless 1 <= clients <= n.
    """
    n = _checked(labels, clients, 1, rng).size
    return _sorted(np.array_split(rng.permutation(n), clients))


def shards(
    labels: ArrayLike, clients: int, *, per_client: int = 2, rng: np.random.Generator
) -> Split:
    """Sort the records by label, cut them into shards, and deal `per_client` to each client.

    So most clients have records of `per_client` labels alone. Records of one label are in random
    order, and the shards' sizes differ by one at most. Raises `InvalidInput` for an integer below
    1, and where there are fewer records than shards.
    Source: McMahan et al., AISTATS 2017, section 3 ("pathological non-IID").
    """
    check_integer("per_client", per_client, 1)
    found = _checked(labels, clients, per_client, rng)
    mixed = rng.permutation(found.size)
    cut = np.array_split(mixed[np.argsort(found[mixed], kind="stable")], clients * per_client)
    dealt = rng.permutation(len(cut)).reshape(clients, per_client)
    return _sorted([np.concatenate([cut[shard] for shard in own]) for own in dealt])


def dirichlet(
    labels: ArrayLike,
    clients: int,
    *,
    alpha: float,
    least: int = 10,
    rng: np.random.Generator,
) -> Split:
    """Split the records of each label by shares of a symmetric Dirichlet distribution.

    The smaller `alpha`, the more clients differ, in labels and in numbers of records. All shares
    are drawn again until each client has `least` records. Raises `InvalidInput` unless alpha is
    finite and > 0 and least >= 1, where there are fewer than clients * least records, and where
    1,000 draws leave some client with fewer than `least`.
    Source: Hsu, Qi and Brown, 2019, section 3 (with the shares drawn by label, as Yurochkin et al.,
    "Bayesian nonparametric federated learning of neural networks", ICML 2019, do).
    """
    check_positive("alpha", alpha)
    check_integer("least", least, 1)
    found = _checked(labels, clients, least, rng)
    _, counts = np.unique(found, return_counts=True)
    by_label = np.split(np.argsort(found, kind="stable"), np.cumsum(counts)[:-1])
    for _ in range(_ATTEMPTS):
        shares = rng.dirichlet(np.full(clients, alpha), counts.size)
        ends = np.rint(np.cumsum(shares, axis=1) * counts[:, None]).astype(np.int64)[:, :-1]
        sizes = np.diff(ends, axis=1, prepend=0, append=counts[:, None])
        if sizes.sum(axis=0).min() >= least:
            break
    else:
        raise InvalidInput(
            f"none of {_ATTEMPTS} draws left each of {clients} clients with {least} records: "
            f"take fewer clients, a larger alpha than {alpha:g} or a smaller least"
        )
    parts = [np.split(rng.permutation(own), cut) for own, cut in zip(by_label, ends, strict=True)]
    return _sorted([np.concatenate(own) for own in zip(*parts, strict=True)])


def _checked(
    labels: ArrayLike, clients: int, per_client: int, rng: np.random.Generator
) -> NDArray[np.generic]:
    """Return the labels as an array, once all that a split needs is there."""
    found = np.asarray(labels)
    check_integer("clients", clients, 1)
    if found.ndim != 1:
        raise InvalidInput(f"labels must have shape (n,), got {found.shape}")
    if found.size < clients * per_client:
        raise InvalidInput(
            f"{clients} clients need at least {clients * per_client} records, got {found.size}"
        )
    if not isinstance(rng, np.random.Generator):
        raise InvalidInput(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    return found


def _sorted(parts: list[NDArray[np.int64]]) -> Split:
    return [np.sort(part) for part in parts]
