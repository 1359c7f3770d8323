"""The obviously right way: one sample after another, and what the book-keeper makes of the same."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from unittest.mock import patch

import torch
from devices import moved
from torch import Tensor, nn

from dpsgd.clipping.clipped_sums import Bookkeeper
from dpsgd.clipping.policies import ClippingPolicy, FlatClipping
from dpsgd.clipping.taps import tap_layers
from dpsgd.gradients import persample
from dpsgd.gradients.persample import PerSample
from dpsgd.layers import fallback, rules_for

Inputs = Sequence[Tensor]
Loss = Callable[[object], Tensor]
Case = tuple[Callable[[], nn.Module], tuple[int, ...] | Callable[[], Tensor]]
"""How to make a layer, and the shape of a sample of its inputs, or how to make a batch of them."""


def batch_of(size: int, inputs: tuple[int, ...] | Callable[[], Tensor]) -> Tensor:
    """Return a batch of a case's inputs."""
    return torch.randn(size, *inputs) if isinstance(inputs, tuple) else inputs()


class Recording(ClippingPolicy):
    """Clip to a norm, and remember the norms."""

    def __init__(self, max_grad_norm: float) -> None:
        self._flat = FlatClipping(max_grad_norm)
        self.norms = torch.empty(0)

    @property
    def limits(self) -> tuple[float, ...]:
        return self._flat.limits

    def factors(self, norms: Tensor) -> Tensor:
        self.norms = norms[0].clone()
        return self._flat.factors(norms)


def energy(output: object) -> Tensor:
    """A loss that adds up over samples, and tells all values of an output apart."""
    first = output[0] if isinstance(output, tuple) else output
    assert isinstance(first, Tensor)
    weights = torch.arange(first.shape[1:].numel(), dtype=first.dtype, device=first.device)
    weights = weights.view(first.shape[1:])
    return ((first - 0.3 * torch.cos(weights)) ** 2).sum() + (first * torch.sin(weights)).sum()


def energy_second(output: object) -> Tensor:
    """The same, for outputs (T, b, ...)."""
    first = output[0] if isinstance(output, tuple) else output
    assert isinstance(first, Tensor)
    return energy(first.transpose(0, 1))


def keep(
    module: nn.Module, policy: ClippingPolicy, *, reduction: str = "sum", batch_dim: int = 0
) -> Bookkeeper:
    keeper = Bookkeeper(
        module,
        policy,
        loss_reduction=reduction,
        batch_dim=batch_dim,
        expect=lambda batch: True,
    )
    tap_layers(keeper, rules_for(module), fallback)
    return keeper


def by_loop(
    module: nn.Module, inputs: Inputs, loss: Loss, batch_dim: int = 0
) -> list[list[Tensor]]:
    """Return the gradients of each sample."""
    found = []
    for i in range(inputs[0].shape[batch_dim]):
        module.zero_grad()
        sample = [x.narrow(batch_dim, i, 1) for x in inputs]
        loss(module(*sample)).backward()
        trained = (p for p in module.parameters() if p.requires_grad)
        found.append(
            [torch.zeros_like(p) if p.grad is None else p.grad.to_dense().clone() for p in trained]
        )
    return found


def check(
    module: nn.Module,
    *inputs: Tensor,
    loss: Loss = energy,
    batch_dim: int = 0,
    tolerance: float = 1e-8,
    device: torch.device | None = None,
) -> None:
    """Assert that norms and the sum of clipped gradients are those of the loop.

    The loop runs where module and inputs are, the book-keeper on `device` if that is given.
    """
    gradients = by_loop(copy.deepcopy(module), inputs, loss, batch_dim)
    norms = torch.stack([torch.cat([g.flatten() for g in sample]).norm() for sample in gradients])
    assert norms.max() > 0
    if any(p.dtype == torch.float32 for p in module.parameters() if p.requires_grad):
        norms = norms.float()  # of parameters of several types, the narrowest
    home = inputs[0].device
    if device is not None:
        module, inputs = moved(module, device), tuple(x.to(device) for x in inputs)
    most = (norms.median().item() or norms.max().item()) * 0.9
    policy = Recording(most)
    keeper = keep(module, policy, batch_dim=batch_dim)
    for _ in range(2):  # the second time without a probe
        loss(module(*inputs)).backward()
        assert policy.norms.device == inputs[0].device
        torch.testing.assert_close(policy.norms.to(home), norms, rtol=tolerance, atol=tolerance)
        factors = torch.clamp(most / norms, max=1)
        expected = [
            sum(f * g[j] for f, g in zip(factors, gradients, strict=True))
            for j in range(len(gradients[0]))
        ]
        for ours, theirs in zip(keeper.take_sums(), expected, strict=True):
            assert ours.device == inputs[0].device
            torch.testing.assert_close(ours.to(home), theirs, rtol=tolerance, atol=tolerance)
    assert all(p.grad is None for p in module.parameters())


def squared_norms(form: PerSample, *, elsewhere: bool = False) -> Tensor:
    """Return the squared norm of each sample's gradient; `elsewhere` as it is done on a GPU."""
    in_pieces = patch("dpsgd.gradients.persample._in_loops", persample._in_pieces)
    with in_pieces if elsewhere else nullcontext():
        totals = torch.zeros(len(form.dense()), dtype=torch.float64)
        form.add_squared_norms(totals)
    return totals
