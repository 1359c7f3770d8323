"""bfloat16: layers run in it, but norms, sums and noise are in float32."""

import copy
import math
import warnings

import pytest
import torch
from cases import MIXED, MIXED_BATCH
from oracle import Recording, batch_of, by_loop, energy, keep
from private import make, model
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset


@pytest.mark.parametrize("name", MIXED)
def test_under_autocast_norms_are_those_of_a_loop(name: str) -> None:
    torch.manual_seed(11)
    build, inputs = MIXED[name]
    module, given = build(), batch_of(MIXED_BATCH, inputs)

    def loss(output: object) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            first = output[0] if isinstance(output, tuple) else output
            return energy(first.float())  # type: ignore[attr-defined]

    policy = Recording(1e9)
    with torch.autocast("cpu", dtype=torch.bfloat16), warnings.catch_warnings(action="ignore"):
        with torch.backends.mkldnn.flags(enabled=False):  # its LSTM needs a CPU with bfloat16
            samples = by_loop(copy.deepcopy(module), [given], loss)
        keeper = keep(module, policy)
        loss(module(given)).backward()
    norms = torch.stack([torch.cat([g.flatten() for g in sample]).norm() for sample in samples])
    assert policy.norms.dtype == torch.float32
    torch.testing.assert_close(policy.norms, norms, rtol=0.03, atol=0.03)
    for i, summed in enumerate(keeper.take_sums()):
        expected = sum(sample[i] for sample in samples)
        assert summed.dtype == torch.float32
        assert (summed - expected).norm() <= 0.03 * max(expected.norm(), norms.max())


def test_bfloat16_autocast_sums_in_float32() -> None:
    twin = copy.deepcopy(model())
    _, module, optimizer, loader = make(noise=1e-12, norm=1e3, sampling="fixed", batch=32)
    x, y = next(iter(loader))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = module(x)
        loss = F.cross_entropy(output, y)
    assert output.dtype == torch.bfloat16
    loss.backward()
    optimizer.step()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        F.cross_entropy(twin(x), y).backward()
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        assert ours.grad.dtype == torch.float32
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0.02, atol=0.002)


def test_parameters_in_bfloat16_are_summed_with_noise_in_float32() -> None:
    # In bfloat16 256 ones and a half add up to no more than 256.
    module = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    _, module, optimizer, loader = make(
        module=module,
        dataset=TensorDataset(torch.ones(771, 1, dtype=torch.bfloat16)),
        noise=1e-3,
        norm=1.0,
        batch=771,
        sampling="fixed",
        loss_reduction="sum",
        max_physical_batch_size=1,
    )
    for (x,) in loader:
        optimizer.zero_grad()
        module(x).sum().backward()
        optimizer.step()
    assert module.weight.grad.dtype == torch.bfloat16
    assert module.weight.grad.item() == 772  # 771 in bfloat16


def test_noise_is_not_rounded_to_bfloat16() -> None:
    module = nn.Linear(4000, 1, bias=False, dtype=torch.bfloat16)
    _, module, optimizer, loader = make(
        module=module,
        dataset=TensorDataset(torch.zeros(8, 4000, dtype=torch.bfloat16)),
        noise=2.0,
        norm=0.1,
        batch=4,
    )
    (x,) = next(iter(loader))
    module(x).sum().backward()
    optimizer.step()
    values = module.weight.grad.float() * 4 / 0.2
    assert abs(values.std() - 1) < 4 / math.sqrt(2 * 4000)
