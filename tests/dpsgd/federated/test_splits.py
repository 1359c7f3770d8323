"""Every record goes to one client, and clients differ as the split says."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from dpsgd.federated import dirichlet, iid, shards
from dpsgd.federated.splits import Split
from ldp import InvalidInput

LABELS = np.random.default_rng(0).integers(0, 10, 2003)
SPLITS: dict[str, Callable[..., Split]] = {
    "iid": iid,
    "shards": shards,
    "dirichlet": partial(dirichlet, alpha=0.5),
}


@pytest.mark.parametrize("kind", SPLITS)
def test_each_record_goes_to_one_client(kind: str) -> None:
    parts = SPLITS[kind](LABELS, 20, rng=np.random.default_rng(1))
    assert len(parts) == 20
    assert sorted(np.concatenate(parts)) == list(range(2003))
    assert all((np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize("kind", SPLITS)
def test_a_seed_gives_one_split(kind: str) -> None:
    def split(seed: int) -> list[list[int]]:
        rng = np.random.default_rng(seed)
        return [part.tolist() for part in SPLITS[kind](LABELS, 20, rng=rng)]

    assert split(1) == split(1) != split(2)


def test_sizes_and_labels_are_what_a_split_says() -> None:
    rng = np.random.default_rng(1)
    assert {len(part) for part in iid(LABELS, 20, rng=rng)} == {100, 101}
    few = [np.unique(LABELS[part]).size for part in shards(LABELS, 20, rng=rng)]
    assert max(few) <= 4  # each of two shards has at most two labels
    assert np.mean(few) < 3
    for alpha, least, most in ((0.1, 0, 5), (1e4, 9.9, 10)):
        parts = dirichlet(LABELS, 20, alpha=alpha, rng=rng)
        assert min(map(len, parts)) >= 10
        counts = [np.bincount(LABELS[part], minlength=10) / len(part) for part in parts]
        effective = np.mean([1 / (shares**2).sum() for shares in counts])
        assert least < effective <= most


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (partial(iid, LABELS, 0), "clients must be an integer >= 1"),
        (partial(iid, LABELS, 2004), "2004 clients need at least 2004 records, got 2003"),
        (partial(iid, LABELS[:, None], 2), "labels must have shape"),
        (partial(shards, LABELS, 1002), "1002 clients need at least 2004 records"),
        (partial(shards, LABELS, 10, per_client=0), "per_client must be an integer >= 1"),
        (partial(dirichlet, LABELS, 10, alpha=0.0), "alpha must be finite and > 0"),
        (partial(dirichlet, LABELS, 10, alpha=np.nan), "alpha must be finite and > 0"),
        (partial(dirichlet, LABELS, 201, alpha=1.0), "201 clients need at least 2010 records"),
        (partial(dirichlet, LABELS, 200, alpha=0.01), "none of 1000 draws left each"),
    ],
)
def test_what_cannot_be_split_is_refused(split: Callable[..., Split], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        split(rng=np.random.default_rng(1))


def test_a_generator_must_be_given() -> None:
    with pytest.raises(InvalidInput, match=r"rng must be a numpy.random.Generator, got int"):
        iid(LABELS, 10, rng=7)  # type: ignore[arg-type]
