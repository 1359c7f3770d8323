"""Forms of per-sample gradients: merging, rounding, and what is too long stays clipped."""

import itertools

import pytest
import torch

from dpsgd.clipping import FlatClipping
from dpsgd.persample import Dense, Outer, PerSample, Rows, gram_squares

B, V, D = 3, 5, 4
KINDS = ["dense", "outer", "rows"]


def forms() -> dict[str, PerSample]:
    torch.manual_seed(1)
    shape = torch.Size((V, D))
    double = torch.float64
    return {
        "dense": Dense(torch.randn(B, V, D, dtype=double)),
        "outer": Outer(torch.randn(B, 2, D).double(), torch.randn(B, 2, V).double(), shape),
        "rows": Rows(torch.randint(V, (B, 6)), torch.randn(B, 6, D, dtype=double), shape),
    }


@pytest.mark.parametrize("names", list(itertools.product(KINDS, repeat=3)), ids=str)
def test_forms_of_any_kinds_merge_into_their_sum(names: tuple[str, str, str]) -> None:
    first, *others = (forms()[name] for name in names)
    expected = first.dense() + sum(other.dense() for other in others)
    for other in others:
        first = first.merge(other)
    torch.testing.assert_close(first.dense(), expected)
    torch.testing.assert_close(first.squared_norms(), expected.flatten(1).square().sum(1))
    factors = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    weighted = torch.einsum("b,bvd->vd", factors, expected)
    torch.testing.assert_close(first.weighted_sum(factors), weighted)
    dropped = first.without(torch.tensor([True, False, False])).dense()
    torch.testing.assert_close(dropped[1:], expected[1:])
    assert not dropped[0].any()


def test_a_norm_that_cancels_is_rounded_upwards() -> None:
    torch.manual_seed(2)
    inputs, outputs = torch.randn(200, 8, 6), torch.randn(200, 8, 5)
    # The second half of the positions takes back nearly all of the first.
    inputs[:, 4:], outputs[:, 4:] = inputs[:, :4], -outputs[:, :4] * (1 + 1e-4)
    outputs *= 1e4
    norms = gram_squares(inputs, outputs).sqrt()
    exact = (outputs.double().mT @ inputs.double()).flatten(1).norm(dim=1)
    assert (exact > 1).all()
    assert (norms >= exact).all()
    assert (FlatClipping(1.0).factors(norms[None])[0] * exact <= 1).all()
