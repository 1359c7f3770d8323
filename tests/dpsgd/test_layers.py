"""Every rule against a loop over single samples, in float64."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from cases import BATCH, LAYERS, OTHERS, OWN, ids
from models import (
    Adapted,
    Attending,
    Bags,
    Dropping,
    Language,
    Made,
    With,
    branches,
    twice,
)
from oracle import Recording, batch_of, check, energy, energy_second, keep
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.policies import FlatClipping
from dpsgd.gradients.persample import Outer
from ldp import InvalidInput


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def made(name: str) -> tuple[nn.Module, Tensor]:
    layer, inputs = LAYERS[name]
    return layer(), batch_of(BATCH, inputs)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", LAYERS)
def test_norms_and_clipped_sums_are_those_of_a_loop(name: str) -> None:
    check(*made(name))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", LAYERS)
def test_no_sample_moves_the_sum_by_more_than_the_norm(name: str) -> None:
    module, given = made(name)
    keeper = keep(module, FlatClipping(0.01))
    sums = []
    for batch in (given, given[1:]):
        (100 * energy(module(batch))).backward()
        sums.append(torch.cat([s.flatten() for s in keeper.take_sums()]))
    assert float((sums[0] - sums[1]).norm()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"causal": True},
        {"padded": True},
        {"add_bias_kv": True},
        {"add_zero_attn": True, "padded": True},
        {"kdim": 3, "vdim": 3},
    ],
    ids=["plain", "no bias", "causal", "padded", "bias_kv", "zero_attn", "own widths"],
)
def test_attention_is_as_in_a_loop(options: dict[str, object]) -> None:
    width = options.get("kdim", 4)
    keys = torch.randn(BATCH, 3, width)
    keys[:, 0, 0] = 0  # a row that is padded throughout has no attention at all
    check(Attending(**options), torch.randn(BATCH, 6, 4), keys)


def test_attention_may_be_used_twice() -> None:
    def twice(self: Any, x: Tensor) -> Tensor:
        once, _ = self.attention(x, x, x)
        return self.attention(once, x, once, need_weights=False)[0]

    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    check(Made(twice, attention=attention), torch.randn(BATCH, 3, 4))


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_a_layer_of_a_transformer_is_as_in_a_loop(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    check(layer, torch.randn(BATCH, 5, 8))


def test_what_a_rule_computes_is_what_the_layer_computes() -> None:
    layer = Attending(add_bias_kv=True, add_zero_attn=True)
    x, y = torch.randn(BATCH, 6, 4), torch.randn(BATCH, 3, 4)
    before = layer(x, y)
    check(layer, x, y)
    torch.testing.assert_close(layer(x, y), before)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.GRU(3, 4),
        lambda: nn.LSTM(3, 4),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)),
        lambda: nn.TransformerEncoderLayer(3, 1, 6, dropout=0.0),
    ],
    ids=["gru", "lstm", "linear", "transformer"],
)
def test_a_batch_in_the_second_dimension_is_found(layer: Callable[[], nn.Module]) -> None:
    check(layer(), torch.randn(BATCH, BATCH, 3), loss=energy_second, batch_dim=1)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_states_of_a_recurrent_layer_carry_gradients_both_ways(kind: type[nn.RNNBase]) -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        first = torch.tanh(self.first(x[:, 0])).unflatten(1, (4, 3)).transpose(0, 1)
        start = (first, first.sin()) if kind is nn.LSTM else first
        _, last = self.layer(x, start)
        return torch.cat([*last] if kind is nn.LSTM else [last]).transpose(0, 1)

    layer = kind(3, 3, 2, batch_first=True, bidirectional=True)
    check(Made(run, first=nn.Linear(3, 12), layer=layer), torch.randn(BATCH, 6, 3))


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_recurrent_layer_computes_what_it_computes_without_privacy(
    kind: type[nn.RNNBase],
) -> None:
    layer = kind(3, 4, 2, batch_first=True, bidirectional=True)
    x = torch.randn(BATCH, 6, 3)
    expected, _ = layer(x)
    keep(layer, Recording(1.0))
    torch.testing.assert_close(layer(x)[0], expected)
    with pytest.raises(RuntimeError, match="hidden"):
        layer(x, torch.zeros(4, 1, 4) if kind is not nn.LSTM else (torch.zeros(4, 1, 4),) * 2)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_may_be_given_by_offsets(mode: str) -> None:
    rows = ids(BATCH, 6)
    rows[0, 0] = 0  # an empty bag
    rows[1, 0] = 3
    check(Bags(mode), rows)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(4, 4), (4,)),
        (lambda: nn.Linear(4, 4), (9, 4)),
        (lambda: nn.Linear(20, 20), (3, 20)),
        (lambda: nn.Conv2d(2, 2, 3, padding=1), (2, 5, 5)),
        (lambda: nn.Conv2d(8, 8, 3, padding=1), (8, 2, 2)),
        (lambda: nn.LayerNorm(4), (4,)),
    ],
    ids=["linear", "linear formed", "linear by Gram", "conv formed", "conv by Gram", "norm"],
)
def test_a_layer_used_twice_adds_its_gradients_before_the_norm(
    layer: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    check(twice(layer()), torch.randn(BATCH, *shape))


@pytest.mark.parametrize("positions", ["flat", "rows of one", "expanded"])
@pytest.mark.parametrize("length", [2, 3, BATCH, BATCH + 1, 30])
def test_tied_embedding_and_head_with_positions_of_no_batch(positions: str, length: int) -> None:
    check(Language(positions), ids(BATCH, length, below=17))


def tied(first: nn.Module, second: nn.Module) -> nn.Module:
    """Two layers that share a weight."""

    def run(self: Any, x: Tensor) -> Tensor:
        return self.first(x).tanh().flatten(1).sum(1) + self.second(x).sin().flatten(1).sum(1)

    second.weight = first.weight
    return Made(run, first=first, second=second)


@pytest.mark.parametrize(
    ("first", "second", "inputs"),
    [
        (lambda: nn.Linear(4, 3), lambda: nn.Linear(4, 3), lambda: torch.randn(BATCH, 2, 4)),
        (
            lambda: nn.Conv1d(2, 3, 3),
            lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1, padding_mode="circular"),
            lambda: torch.randn(BATCH, 2, 9),
        ),
        (
            lambda: nn.Embedding(11, 3),
            lambda: nn.EmbeddingBag(11, 3, mode="mean"),
            lambda: ids(BATCH, 4),
        ),
    ],
    ids=["linear", "conv", "embedding and bag"],
)
def test_layers_that_share_a_weight_add_their_gradients_before_the_norm(
    first: Callable[[], nn.Module],
    second: Callable[[], nn.Module],
    inputs: Callable[[], Tensor],
) -> None:
    check(tied(first(), second()), inputs(), loss=lambda out: out.square().sum())


def test_unused_layers_have_no_gradient() -> None:
    check(branches(), torch.randn(BATCH, 3))


def test_low_rank_adapters_are_clipped_and_their_base_is_left_alone() -> None:
    module = nn.Sequential(Adapted(nn.Linear(4, 6), 2), nn.ReLU(), Adapted(nn.Linear(6, 3), 2))
    check(module, torch.randn(BATCH, 3, 4))


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [(lambda: nn.Linear(4, 3), (4,)), (lambda: nn.Conv1d(4, 3, 2), (4, 5))],
    ids=["linear", "conv"],
)
def test_a_frozen_part_of_a_layer_has_no_part_in_the_norm(
    layer: Callable[[], nn.Module], shape: tuple[int, ...], frozen: str
) -> None:
    module = layer()
    module.get_parameter(frozen).requires_grad_(False)
    check(module, torch.randn(BATCH, *shape))


@pytest.mark.parametrize("name", OWN)
def test_own_parameters_of_a_module_are_as_in_a_loop(name: str) -> None:
    layer, inputs = OWN[name]
    check(layer(), batch_of(BATCH, inputs))


def test_a_row_of_each_sample_is_its_own() -> None:
    """A parameter that every sample uses moves the sum by no more than the norm for each."""
    layer, _ = OWN["mean over what was expanded"]
    keeper = keep(layer(), FlatClipping(0.01))
    x = torch.randn(BATCH, 5, 4)
    sums = []
    for scale in (1, 1e6):  # of one sample's gradient
        weights = torch.ones(BATCH, 1, 1)
        weights[0] = scale
        (keeper.module(x) * weights).sum().backward()
        sums.append(keeper.take_sums()[0])
    assert float((sums[0] - sums[1]).norm()) <= 0.02 * (1 + 1e-6)


def test_parameters_used_otherwise_than_in_the_first_batch_are_refused() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        return x * self.p if x[0, 0] < 1e6 else torch.einsum("bd,d->bd", x, self.p)

    keeper = keep(With(run, (4,)), Recording(1.0))
    x = torch.ones(BATCH, 4)
    keeper.module(x)
    with pytest.raises(InvalidInput, match="was not called like this for the first batch"):
        keeper.module(1e7 * x)


def test_training_takes_no_batch_dimension_from_evaluation() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        if not self.training:
            x = x * self.q
        return x + torch.arange(1.0, BATCH + 1)[:, None].expand(BATCH, 4) * self.p

    keeper = keep(With(run, (1, 4), (4,)).eval(), FlatClipping(1.0))
    x, weights = torch.randn(BATCH, BATCH, 4), torch.eye(BATCH)[0][:, None, None]
    for training in (False, True):  # the same function, at one of which samples meet q
        (1000 * weights * keeper.module.train(training)(x)).sum().backward()
        assert math.hypot(*(float(total.norm()) for total in keeper.take_sums())) <= 1


def test_a_function_of_other_parameters_is_refused_beside_own_ones() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        return F.layer_norm(self.layer(x), (4,), self.p, 2 * self.layer.bias)

    keeper = keep(With(run, (4,), layer=nn.Linear(4, 4)), Recording(1.0))
    with pytest.raises(InvalidInput, match="layer_norm with what depends on other parameters"):
        keeper.module(torch.randn(BATCH, 4))


@pytest.mark.slow
def test_models_of_transformers_need_no_fallback() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {"vocab_size": 32, "intermediate_size": 12, **sizes}
    images = {"image_size": 8, "patch_size": 4, **sizes}
    tokens, pictures = ids(BATCH, 6, below=32), torch.randn(BATCH, 3, 8, 8)
    configs: dict[str, tuple[dict[str, Any], Tensor]] = {
        "BertForMaskedLM": (text, tokens),
        "GPT2LMHeadModel": (
            {"vocab_size": 32, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 2},
            tokens,
        ),
        "LlamaForCausalLM": (text, tokens),
        "T5EncoderModel": (
            {
                "vocab_size": 32,
                "d_model": 8,
                "d_kv": 4,
                "d_ff": 12,
                "num_layers": 2,
                "num_heads": 2,
            },
            tokens,
        ),
        "ViTModel": ({**images, "intermediate_size": 12}, pictures),
        "Dinov2Model": ({**images, "mlp_ratio": 2}, pictures),
    }
    for name, (options, batch) in configs.items():
        try:
            kind = getattr(transformers, name)
        except ImportError as error:  # of what transformers loads with it
            pytest.skip(str(error))
        model = kind(kind.config_class(**options)).eval().double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        check(
            Made(lambda self, x: next(iter(self.model(x).values())), model=model),
            batch,
            tolerance=1e-6,
        )


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", OTHERS)
def test_any_other_layer_is_run_by_sample_and_named(name: str) -> None:
    module, shape = OTHERS[name]
    with pytest.warns(UserWarning, match="no rule for"):
        check(module(), torch.randn(BATCH, *shape))


@pytest.mark.filterwarnings("ignore:no rule for")
def test_a_module_without_a_rule_may_be_wrapped_after() -> None:
    module, shape = OTHERS["unknown function"][0](), OTHERS["unknown function"][1]
    keeper, tapped = keep(module, Recording(1.0)), module.forward
    module.forward = lambda x: tapped(x).float()  # as accelerate does it for bfloat16
    module(torch.randn(BATCH, *shape)).sum().backward()
    assert keeper.take_sums()[0].norm() > 0


def mixed() -> nn.Module:
    layers = {"first": nn.Linear(4, 3).float(), "second": nn.Linear(3, 2)}
    return Made(lambda self, x: self.second(self.first(x).double()), **layers)


def test_parameters_may_be_of_different_types() -> None:
    check(mixed(), torch.randn(BATCH, 4, dtype=torch.float32), tolerance=1e-5)


def test_factors_are_rounded_down_in_the_narrowest_type_of_parameters() -> None:
    # Rounded down in float64, and then to the nearest of float32, half of them would be too large.
    used = []

    def noted(self: Outer, factors: Tensor) -> Tensor:
        used.append(factors.double())
        return torch.zeros(self.shape, dtype=factors.dtype)

    policy = Recording(1.0)
    keeper = keep(mixed(), policy)
    with patch("dpsgd.gradients.persample.Outer.weighted_sum", noted):
        keeper.module(100 * torch.randn(1000, 4, dtype=torch.float32)).square().sum().backward()
    assert len(used) == 2
    for factors in used:
        assert (factors * policy.norms.double() <= 1).all()


def test_dropout_in_a_layer_without_a_rule_is_the_same_forward_and_backward() -> None:
    module = Dropping()
    keeper = keep(module, Recording(1e9))
    with warnings.catch_warnings(action="ignore"):
        output = module(torch.ones(BATCH, 50))
    assert not torch.equal(output[0], output[1])
    output.sum().backward()
    torch.testing.assert_close(keeper.take_sums()[0], output.detach().sum(0))
