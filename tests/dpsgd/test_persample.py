"""Forms of per-sample gradients: merging, rounding, and what is too long stays clipped."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from oracle import keep, squared_norms
from torch import nn

from dpsgd.clipping.policies import FlatClipping
from dpsgd.gradients.persample import Blocks, Dense, Outer, PerSample, Rows, gram_squares, merged
from dpsgd.gradients.precision import exact
from ldp import InvalidInput

B, V, D = 3, 5, 4
KINDS = ["dense", "outer", "one position", "rows", "blocks"]


def forms() -> dict[str, PerSample]:
    torch.manual_seed(1)
    shape = torch.Size((V, D))
    double = torch.float64
    return {
        "dense": Dense(torch.randn(B, V, D, dtype=double)),
        "outer": Outer(torch.randn(B, 2, D).double(), torch.randn(B, 2, V).double(), shape),
        "one position": Outer(torch.randn(B, 1, D).double(), torch.randn(B, 1, V).double(), shape),
        "rows": Rows(torch.randint(V, (B, 6)), torch.randn(B, 6, D, dtype=double), shape),
        "blocks": Blocks(
            [
                Outer(torch.randn(B, 2, D).double(), torch.randn(B, 2, 3).double(), (3, D)),
                Dense(torch.randn(B, V - 3, D, dtype=double)),
            ]
        ),
    }


@pytest.mark.parametrize("names", list(itertools.product(KINDS, repeat=3)), ids=str)
def test_forms_of_any_kinds_merge_into_their_sum(names: tuple[str, str, str]) -> None:
    parts = [forms()[name] for name in names]
    expected = sum(part.dense() for part in parts)
    first = merged(parts)
    torch.testing.assert_close(first.dense(), expected)
    squares = expected.flatten(1).square().sum(1)
    torch.testing.assert_close(squared_norms(first), squares)
    torch.testing.assert_close(squared_norms(first, elsewhere=True), squares)
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


@pytest.mark.parametrize("width", [2048, 8192, 400_000])
def test_a_norm_by_gram_matrices_of_wide_rows_is_not_too_small(width: int) -> None:
    for a in (0.1, 0.3, 0.7, 0.9):  # some sums of 400,000 would be short, others too long
        inputs, outputs = torch.full((1, 2, width), a), torch.full((1, 2, 3), 0.30001)
        exact = math.sqrt(width * 3) * 2 * inputs[0, 0, 0].item() * outputs[0, 0, 0].item()
        for rows in ((inputs, outputs), (outputs, inputs)):
            assert gram_squares(*rows).double().sqrt() >= exact * (1 - 1e-7)


def test_a_norm_of_a_tied_table_that_cancels_is_rounded_upwards() -> None:
    torch.manual_seed(3)
    inputs, ids = torch.randn(200, 1, 60), torch.randint(V, (200, 1))
    outputs = nn.functional.one_hot(ids, V).float()
    rows = Rows(ids, -inputs * (1 + 1e-5 * torch.rand(200, 1, 1)), torch.Size((V, 60)))
    form = merged([Outer(inputs, outputs, rows.shape), rows])
    exact = (inputs.double() + rows.gradients.double()).flatten(1).norm(dim=1)
    assert (squared_norms(form).sqrt() >= exact).all()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["cpu", "elsewhere"])
@pytest.mark.parametrize("value", [None, 0.7, 0.30001], ids=["random", "0.7", "0.30001"])
def test_the_norm_of_many_values_is_not_too_small(value: float | None, elsewhere: bool) -> None:
    # Values of one sign, and a total of float32 that soon takes in only part of each. Equal ones
    # are all rounded to the same side.
    many = torch.rand(2, 4_000_000) + 0.5 if value is None else torch.full((2, 1_000_033), value)
    norms = squared_norms(Dense(many), elsewhere=elsewhere).sqrt()
    exact = many.double().norm(dim=1)
    torch.testing.assert_close(norms, exact, rtol=1e-5 if elsewhere else 1e-7, atol=0)
    assert (FlatClipping(1.0).factors(norms.float()[None])[0] * exact <= 1).all()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["cpu", "elsewhere"])
@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_the_norm_of_an_outer_product_is_not_too_small(size: int, elsewhere: bool) -> None:
    inputs, outputs = torch.full((2, 1, size), 0.30001), torch.full((2, 1, 10_007), 0.7)
    form = Outer(inputs, outputs, torch.Size((10_007, size)))
    norms = squared_norms(form, elsewhere=elsewhere).sqrt()
    exact = inputs.double().norm(dim=2)[:, 0] * outputs.double().norm(dim=2)[:, 0]
    assert (norms >= exact * (1 - 1e-12)).all()
    assert (norms <= exact * (1 + 2e-5)).all()


def test_the_norm_of_many_rows_is_not_too_small() -> None:
    gradients = torch.full((1, 4000, 2), 0.7)
    norm = squared_norms(Rows(torch.arange(4000)[None], gradients, torch.Size((4000, 2)))).sqrt()
    assert norm.item() == pytest.approx(gradients.double().norm().item(), rel=1e-7)


TINY = 2.5e-23  # its square is 0 in float32


def full(positions: int, size: int, value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((B, positions, size), value, dtype=torch.float32).to(dtype)


def outer_of(positions: int, dtype: torch.dtype) -> Outer:
    inputs, outputs = full(positions, D, 1e18, dtype), full(positions, V, TINY, dtype)
    return Outer(inputs, outputs, torch.Size((V, D)))


def rows_of(positions: int, dtype: torch.dtype) -> Rows:
    ids = torch.zeros(B, positions, dtype=torch.long)
    return Rows(ids, full(positions, D, TINY, dtype), torch.Size((V, D)))


SMALL: dict[str, Callable[[torch.dtype], PerSample]] = {
    "dense": lambda dtype: Dense(full(V, D, TINY, dtype)),
    "outer of one position": lambda dtype: outer_of(1, dtype),
    "outer of several": lambda dtype: outer_of(3, dtype),
    "rows": lambda dtype: rows_of(3, dtype),
    "tied": lambda dtype: merged([outer_of(3, dtype), rows_of(3, dtype)]),
}


@pytest.mark.parametrize("elsewhere", [False, True], ids=["cpu", "elsewhere"])
@pytest.mark.parametrize("name", SMALL)
def test_a_norm_of_which_squares_are_rounded_to_zero_is_not_too_small(
    name: str, elsewhere: bool
) -> None:
    form, double = SMALL[name](torch.float32), SMALL[name](torch.float64)
    exact = double.dense().flatten(1).norm(dim=1)
    assert (exact > 1e-23).all()
    assert (squared_norms(form, elsewhere=elsewhere).sqrt() >= exact).all()


def test_a_norm_of_a_tied_table_whose_products_are_rounded_to_zero_is_not_too_small() -> None:
    inputs, outputs = torch.full((1, 1, 1), 1e-36), torch.full((1, 1, 1), 1e26)
    rows = Rows(
        torch.zeros(1, 1, dtype=torch.long), torch.full((1, 1, 1), 1e-10), torch.Size((1, 1))
    )
    form = merged([Outer(inputs, outputs, rows.shape), rows])  # of 1e-10, their product 1e-46
    assert squared_norms(form).sqrt().item() >= 2e-10


@pytest.mark.parametrize("value", [2e19, 3e38])
@pytest.mark.parametrize("bias", [False, True])
def test_a_record_beyond_the_squares_of_its_type_counts_as_zero(bias: bool, value: float) -> None:
    # To clip it would take a factor that is rounded to few bits.
    module = nn.Linear(2, 3, bias=bias)
    module.weight.requires_grad_(not bias)
    keeper = keep(module, FlatClipping(1e-5), reduction="sum")
    inputs = torch.ones(2, 2) if bias else torch.tensor([[1.0, 1.0], [value, value]])
    (module(inputs).sum(1) * torch.tensor([1.0, value if bias else 1.0])).sum().backward()
    (summed,) = keeper.take_sums()
    assert summed.norm().item() == pytest.approx(1e-5)
    assert (summed > 0).all()


def test_gradients_of_another_number_of_samples_are_refused() -> None:
    with pytest.raises(InvalidInput, match="got gradients of 2 samples, expected 4"):
        Dense(torch.ones(2, 3)).add_squared_norms(torch.zeros(4).double())
    other = Outer(torch.ones(3, 1, 3), torch.ones(2, 1, 3), torch.Size((3, 3)))
    with pytest.raises(InvalidInput, match="got gradients of 2 samples, expected 3"):
        other.add_squared_norms(torch.zeros(3).double())


def test_a_record_of_which_squares_are_rounded_to_zero_is_clipped() -> None:
    module = nn.Linear(1, 1, bias=False)
    keeper = keep(module, FlatClipping(0.01), reduction="mean")
    # Of one record only, as a sum of many is rounded in float32.
    (module(torch.full((1024, 1), 1.8e19))[0] * TINY).sum().backward()
    assert 0 < keeper.take_sums()[0].norm() <= 0.01


def test_norms_and_sums_are_computed_with_all_bits() -> None:
    seen = []

    class Watching(FlatClipping):
        def factors(self, norms: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_float32_matmul_precision())
            return super().factors(norms)

    module = nn.Linear(4, 4)
    keep(module, Watching(1.0))
    torch.set_float32_matmul_precision("medium")
    try:
        module(torch.randn(3, 4)).sum().backward()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == ["highest"]


def test_a_precision_that_was_set_for_one_backend_is_set_back() -> None:
    settings = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul, torch.backends.cudnn.conv
    before = [setting.fp32_precision for setting in settings]
    settings[1].fp32_precision = "bf16"
    try:
        with exact("cuda"):
            assert {setting.fp32_precision for setting in settings} == {"ieee"}
        assert settings[1].fp32_precision == "bf16"
    finally:
        settings[1].fp32_precision = before[1]
    assert [setting.fp32_precision for setting in settings] == before
