"""Batches of every kind: empty ones, texts, bags, and those whose batch is another dimension."""

import copy
import functools
import math
import warnings
from collections import UserDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from models import Made, Own
from private import data, make, sized, train
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from dpsgd import QuantileClipping
from dpsgd.gradients.mixing import tensors
from ldp import InvalidInput


def test_poisson_batches_vary_and_empty_ones_are_steps_of_noise_alone() -> None:
    engine, module, optimizer, loader = make(sized(0, 3, 0), noise=1e-9)
    moved = []
    for x, y in loader:
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        moved.append(torch.cat([p.grad.flatten() for p in module.parameters()]).norm() > 1e-6)
    assert moved == [False, True, False, False, True, False, False, True]
    assert sum(event.steps for event in engine.accountant.history) == len(moved)


@pytest.mark.parametrize(
    "norm", [1.0, QuantileClipping(1.0, count_noise=3.0)], ids=["flat", "adaptive"]
)
@pytest.mark.parametrize("sizes", [(0,), (0, 5), (4, 0, 0)], ids=str)
def test_the_record_in_place_of_an_empty_batch_adds_exactly_nothing(
    norm: Any, sizes: tuple[int, ...]
) -> None:
    results = []
    for value in (0.0, 1e9, math.nan):
        x, y = data().tensors
        dataset = TensorDataset(torch.cat([torch.full((1, 4), value), x]), torch.cat([y[:1], y]))
        engine, module, optimizer, loader = make(
            sized(*sizes), dataset=dataset, norm=norm, max_physical_batch_size=3
        )
        train(module, optimizer, loader)
        results.append((torch.cat([p.flatten() for p in module.parameters()]), engine))
    for weights, engine in results:
        assert torch.equal(weights, results[0][0])
        assert engine.max_grad_norm == results[0][1].max_grad_norm


def test_the_length_of_a_loader_counts_physical_batches() -> None:
    for most in (None, 1, 3, 8):
        for sampling in ("poisson", "fixed", "shuffle"):
            *_, loader = make(dataset=data(67), max_physical_batch_size=most, sampling=sampling)
            for _ in range(3):
                sizes = [len(x) for x, _ in loader]
                assert len(sizes) == len(loader)
                assert most is None or max(sizes) <= most
    assert len(make(dataset=data(67))[3]) == 9  # whole batches are one for each step


def test_a_closure_is_run_before_the_release() -> None:
    grads = []
    for closing in (False, True):
        _, module, optimizer, loader = make(max_physical_batch_size=3)
        for x, y in loader:

            def closure(x: Any = x, y: Any = y, module: Any = module) -> torch.Tensor:
                loss = F.cross_entropy(module(x), y)
                loss.backward()
                return loss

            loss = optimizer.step(closure) if closing else closure()
            assert loss > 0
            if not closing:
                optimizer.step()
        grads.append([p.detach() for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_batches_of_texts_and_of_nothing_go_through_any_collate_function() -> None:
    texts = [("a b" if i % 2 else "b", i % 2) for i in range(6)]

    def collate(rows: list[tuple[str, int]]) -> Any:
        assert rows, "most collate functions fail on no rows"
        words, labels = zip(*rows, strict=True)
        return {"text": words, "none": None, "y": torch.tensor(labels)}

    loader = DataLoader(texts, batch_size=1, collate_fn=collate)  # type: ignore[arg-type]
    engine, module, optimizer, batches = make(sized(0, 2), loader=loader)
    for batch in batches:
        assert isinstance(batch["text"], tuple)
        x = torch.tensor([[len(text), 1.0, 0.0, 0.0] for text in batch["text"]])
        F.cross_entropy(module(x), batch["y"]).backward()
        optimizer.step()
    assert sum(event.steps for event in engine.accountant.history) == 6


class Sequences(nn.Module):
    """A classifier of padded sequences (T, b, d), with a mask (b, T) of what is padding."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if isinstance(self.layer, nn.GRU):
            return self.head(self.layer(x)[0][-1])
        return self.head(self.layer(x, src_key_padding_mask=mask)[0])


@pytest.mark.parametrize("batch", [3, 5])  # one of them is the length
@pytest.mark.parametrize("mixing", [False, True], ids=["", "mixing"])
@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_the_batch_may_be_dimension_1_of_some_inputs(kind: str, mixing: bool, batch: int) -> None:
    layer = nn.GRU(4, 4) if kind == "gru" else nn.TransformerEncoderLayer(4, 2, 8)
    x = torch.randn(12, 5, 4)
    dataset = TensorDataset(x, torch.arange(5) >= torch.randint(1, 6, (12, 1)), torch.arange(12))

    def collate(rows: list[Any]) -> Any:
        values, masks, places = (torch.stack(column) for column in zip(*rows, strict=True))
        return values.transpose(0, 1), masks, places % 2

    _, module, optimizer, loader = make(
        module=Sequences(layer),
        loader=DataLoader(dataset, batch_size=batch, collate_fn=collate),
        sampling="fixed",
        batch_dim=1,
    )
    for values, mask, y in loader:
        if mixing:
            module.layer.register_forward_pre_hook(lambda _, args: (args[0].roll(1, 1),))
            with pytest.raises(InvalidInput, match="depends on the other samples"):
                module(values, mask)
            break
        F.cross_entropy(module(values, mask), y).backward()
        optimizer.step()


@pytest.mark.parametrize("mixing", [False, True], ids=["", "mixing"])
def test_bags_are_told_apart_by_their_offsets(mixing: bool) -> None:
    words = [torch.arange(i, i + i % 4) for i in range(12)]  # bags of no word, too

    def collate(rows: list[Any]) -> Any:
        lengths = torch.tensor([len(row) for row in rows])
        return torch.cat(rows), lengths.cumsum(0) - lengths

    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(20, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            bags = self.bag(ids, offsets)
            return self.head(bags - bags.mean(0) if mixing else bags)

    module = Bags()
    twin = copy.deepcopy(module)
    _, module, optimizer, loader = make(
        sized(4, 0), module=module, loader=DataLoader(words, batch_size=4, collate_fn=collate)
    )
    ids, offsets = next(iter(loader))
    if mixing:
        with pytest.raises(InvalidInput, match="depends on the other samples"):
            module(ids, offsets)
        return
    assert torch.equal(module(ids, offsets), twin(ids, offsets))
    for ids, offsets in loader:
        module(ids, offsets).square().sum(1).mean().backward()
        optimizer.step()


def test_parts_that_run_again_in_backward_change_nothing() -> None:
    parts = {
        "linear": nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.3)),
        "encoder": nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        "own": Own(),
        "head": nn.Linear(3, 2),
    }
    dataset = TensorDataset(torch.randn(64, 3, 4), torch.arange(64) % 2)
    results = []
    for again in (False, True):

        def run(self: Any, x: torch.Tensor, again: bool = again) -> torch.Tensor:
            kept = functools.partial(checkpoint, use_reentrant=False) if again else None
            for part in (self.linear, self.linear, self.encoder, self.own):
                x = kept(part, x) if kept else part(x)
            return self.head(x)[:, 0]

        with warnings.catch_warnings(action="ignore"):
            made = make(module=Made(run, **copy.deepcopy(parts)), dataset=dataset, noise=1e-9)
        torch.manual_seed(7)  # of dropout
        train(*made[1:])
        results.append(torch.cat([p.flatten() for p in made[1].parameters()]))
    assert torch.equal(*results)


@dataclass(frozen=True, slots=True)
class Rows:
    values: torch.Tensor
    name: str = ""


class Pair(NamedTuple):
    values: torch.Tensor
    none: None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: {"values": [x], "n": 3},
        lambda x: UserDict(values=x),
        Rows,
        lambda x: Pair(x, None),
        lambda x: (torch.max(x.unsqueeze(1), 1), "text"),
    ],
    ids=["dict", "mapping", "dataclass", "named", "return type"],
)
def test_inputs_and_outputs_may_be_nested_in_what_people_use(wrap: Any) -> None:
    def unwrapped(rows: Any) -> torch.Tensor:
        return tensors(rows)[0]

    module = Made(lambda self, rows: wrap(self.layer(unwrapped(rows))), layer=nn.Linear(4, 2))
    rolling = Made(
        lambda self, rows: wrap(self.layer(unwrapped(rows).roll(1, 0))), layer=nn.Linear(4, 2)
    )
    _, module, optimizer, loader = make(module=module)
    for x, y in loader:
        out = module(wrap(x))
        assert type(out) is type(wrap(x))
        F.cross_entropy(unwrapped(out), y).backward()
        optimizer.step()
    _, rolling, _, loader = make(module=rolling)
    with pytest.raises(InvalidInput, match="depends on the other samples"):
        rolling(wrap(next(iter(loader))[0]))
