"""The engine: the ordinary loop, its batches, its noise, and what it costs."""

import copy
import logging
import math
import warnings
from collections.abc import Callable

import pytest
import torch
from models import Made
from oracle import by_loop
from private import BATCH, N, backward, data, make, model, train
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset

from dpsgd import AdamBC, PrivacyEngine
from dpsgd.accounting import NoSampling, PoissonSampling, RDPAccountant, Relation
from dpsgd.training.sampling import PrivateDataLoader
from ldp import InvalidInput
from ldp.testing import SeededCoins


def test_a_step_moves_by_the_clipped_sum_over_the_expected_size() -> None:
    module = model().double()
    twin = copy.deepcopy(module)
    dataset = TensorDataset(*(t.double() if t.is_floating_point() else t for t in data().tensors))
    _, module, optimizer, loader = make(module=module, dataset=dataset, noise=1e-12, norm=0.3)
    x, y = next(iter(loader))
    before = [p.detach().clone() for p in module.parameters()]
    F.cross_entropy(module(x), y).backward()
    optimizer.step()
    gradients = []
    for i in range(len(x)):
        (sample,) = by_loop(twin, [x[i : i + 1]], lambda o, i=i: F.cross_entropy(o, y[i : i + 1]))
        norm = torch.cat([g.flatten() for g in sample]).norm()
        gradients.append([g * min(1, 0.3 / norm) for g in sample])
    assert len(x) != BATCH
    for j, (now, then) in enumerate(zip(module.parameters(), before, strict=True)):
        expected = then - 0.1 * sum(g[j] for g in gradients) / BATCH
        torch.testing.assert_close(now, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "optimizer",
    [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, AdamBC],
)
def test_any_optimizer_learns(optimizer: Callable[..., torch.optim.Optimizer]) -> None:
    _, module, stepper, loader = make(optimizer=optimizer, noise=0.3, dataset=data(512), batch=64)
    for _ in range(6):
        train(module, stepper, loader)
    x, y = data(512).tensors
    with torch.no_grad():
        assert (module(x).argmax(1) == y).float().mean() > 0.8


def test_noise_has_the_deviation_that_is_accounted_for() -> None:
    module = nn.Linear(400, 50, bias=False)
    dataset = TensorDataset(torch.zeros(16, 400))
    _, module, optimizer, loader = make(
        module=module, dataset=dataset, noise=3.0, norm=0.5, batch=4
    )
    before = None
    for (x,) in loader:
        module(x).sum().backward()
        optimizer.step()
        grad = module.weight.grad * 4 / (3.0 * 0.5)
        assert grad.dtype == torch.float32
        assert abs(grad.std() - 1) < 4 / math.sqrt(2 * grad.numel())
        assert abs(grad.mean()) < 4 / math.sqrt(grad.numel())
        if before is not None:
            assert abs((grad * before).mean()) < 4 / math.sqrt(grad.numel())
        before = grad.clone()


def test_noise_for_float64_has_more_bits_than_float32() -> None:
    # Noise of 24 bits is what is left of a float64 gradient without the true sum, and no other.
    module = nn.Linear(50, 20, bias=False).double()
    x = torch.rand(4, 50, dtype=torch.float64)
    true = x.sum(0).expand(20, 50)
    _, module, optimizer, loader = make(
        module=module, dataset=TensorDataset(x), batch=4, sampling="fixed", norm=1e3
    )
    (x,) = next(iter(loader))
    module(x).sum(1).mean().backward()
    optimizer.step()
    noise = (module.weight.grad * 4 - true) / (1e3 * (1 + 1 / 4096))
    bits = (noise - noise.float().double()).abs() / noise.abs()
    assert (bits > 2.0**-32).double().mean() > 0.9


def test_two_runs_with_the_same_seeds_draw_different_noise() -> None:
    grads = []
    for _ in range(2):
        torch.manual_seed(0)
        _, module, optimizer, loader = make(PrivacyEngine())
        train(module, optimizer, loader, 1)
        grads.append(torch.cat([p.grad.flatten() for p in module.parameters()]))
    assert not (grads[0] == grads[1]).any()


def test_epsilon_is_that_of_the_steps_that_were_made() -> None:
    engine, module, optimizer, loader = make()
    assert engine.get_epsilon(1e-5) == 0
    train(module, optimizer, loader)
    reference = RDPAccountant(Relation.ADD_REMOVE)
    reference.step(noise_multiplier=1.0, sampling=PoissonSampling(BATCH / N), steps=N // BATCH)
    assert engine.get_epsilon(1e-5) == reference.get_epsilon(1e-5) > 0


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "shuffle"])
def test_noise_is_found_for_a_target_and_used_up(sampling: str) -> None:
    engine = PrivacyEngine()
    module = model()
    made = engine.make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(data(), batch_size=BATCH),
        target_epsilon=3.0,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
        sampling=sampling,
    )
    for _ in range(2):
        train(*made)
    assert 2.999 < engine.get_epsilon(1e-5) <= 3.0


def test_each_record_is_drawn_with_the_rate_that_is_accounted_for() -> None:
    _, _, _, loader = make(dataset=TensorDataset(torch.arange(40.0)[:, None]), batch=10)
    drawn = torch.cat([x.flatten() for _ in range(500) for (x,) in loader]).long()
    counts = torch.bincount(drawn, minlength=40) / (500 * 4)
    assert (counts - 0.25).abs().max() < 4.5 * math.sqrt(0.25 * 0.75 / 2000)


def test_fixed_size_batches_are_accounted_for_as_what_they_are() -> None:
    engine, module, optimizer, loader = make(sampling="fixed")
    assert set(train(module, optimizer, loader)) == {BATCH}
    assert engine.accountant.relation is Relation.REPLACE_ONE
    (event,) = engine.accountant.history
    assert (event.sampling.batch, event.sampling.dataset, event.steps) == (BATCH, N, N // BATCH)


def test_a_shuffled_epoch_is_one_release_without_amplification() -> None:
    engine, module, optimizer, loader = make(sampling="shuffle")
    assert isinstance(loader, PrivateDataLoader)
    for _ in range(3):
        assert sum(train(module, optimizer, loader)) == N
    assert engine.accountant.relation is Relation.REPLACE_SPECIAL
    (event,) = engine.accountant.history
    assert (event.sampling, event.steps) == (NoSampling(), 3)


def test_less_noise_within_a_shuffled_epoch_is_accounted_for() -> None:
    engine, module, optimizer, loader = make(sampling="shuffle", noise=2.0)
    batches = iter(loader)
    train(module, optimizer, batches, 2)
    engine.noise_multiplier = 1.0
    train(module, optimizer, batches, 2)
    assert [e.noise_multiplier for e in engine.accountant.history] == [2.0, 1.0]


def test_physical_batches_add_up_to_a_logical_one() -> None:
    results = []
    for most in (None, 3):
        engine, module, optimizer, loader = make(
            PrivacyEngine(coins=SeededCoins(4)), noise=1e-9, norm=0.2, max_physical_batch_size=most
        )
        sizes = train(module, optimizer, loader)
        assert most is None or max(sizes) <= most
        (event,) = engine.accountant.history
        assert event.steps == N // BATCH
        results.append([p.detach() for p in module.parameters()])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_steps_between_parts_leave_the_optimizer_alone() -> None:
    _, module, optimizer, loader = make(optimizer=torch.optim.Adam, max_physical_batch_size=3)
    first = next(module.parameters())
    steps, logical = 0, 0
    for x, y in loader:
        before = first.detach().clone()
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        moved = not torch.equal(first, before)
        logical += moved
        steps += 1
        assert (first.grad is not None) == moved
    assert steps > logical == N // BATCH == optimizer.state[first]["step"]


def test_accumulated_batches_are_summed_as_in_a_loop() -> None:
    twin, (_, module, optimizer, loader) = model(), make(noise=1e-9, norm=0.3)
    batches, expected = iter(loader), [torch.zeros_like(p) for p in twin.parameters()]
    for _ in range(3):
        x, y = next(batches)
        F.cross_entropy(module(x), y).backward()
        for i in range(len(x)):
            one = slice(i, i + 1)
            (sample,) = by_loop(twin, [x[one]], lambda o, y=y[one]: F.cross_entropy(o, y))
            norm = torch.cat([g.flatten() for g in sample]).norm()
            for total, gradient in zip(expected, sample, strict=True):
                total += gradient * min(1, 0.3 / norm) / BATCH
    optimizer.step()
    for parameter, total in zip(module.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, total, rtol=1e-4, atol=1e-6)


def test_batches_accumulated_before_a_step_are_accounted_for_as_releases_of_less_noise() -> None:
    engine, module, optimizer, loader = make(noise=2.0)
    batches = iter(loader)
    for _ in range(2):
        backward(module, batches)
    optimizer.step()
    (event,) = engine.accountant.history
    assert (event.noise_multiplier, event.steps) == (2.0 / math.sqrt(2), 2)


def releases(engine: PrivacyEngine) -> list[tuple[float, int]]:
    return [(e.noise_multiplier, e.steps) for e in engine.accountant.history]


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_batches_on_which_a_loop_only_looks_cost_nothing(sampling: str) -> None:
    engine, module, optimizer, loader = make(sampling=sampling, batch=32)
    for _ in range(3):
        with torch.no_grad():
            for x, _ in loader:
                module(x)
        train(module, optimizer, loader, 1)
    engine.max_grad_norm = 0.5  # nothing is under way
    assert releases(engine) == [(1.0, 3)]


def test_a_batch_with_a_backward_pass_and_without_a_step_counts_in_the_next() -> None:
    engine, module, optimizer, loader = make(sampling="fixed", noise=2.0)
    batches = iter(loader)
    backward(module, batches)
    next(batches)  # looked at
    next(batches)
    optimizer.step()  # on a batch without a backward pass
    assert releases(engine) == [(2.0 / math.sqrt(2), 2)]
    next(batches)
    optimizer.step()
    assert releases(engine)[1:] == [(2.0, 1)]


def test_a_backward_pass_after_the_step_needs_another_batch() -> None:
    _, module, optimizer, loader = make()
    x, y = next(iter(loader))
    optimizer.step()
    with pytest.raises(InvalidInput, match="no batch was drawn since the last step"):
        F.cross_entropy(module(x), y).backward()


def test_a_shuffled_epoch_counts_though_its_first_batch_was_only_looked_at() -> None:
    engine, module, optimizer, loader = make(sampling="shuffle")
    for _ in range(2):
        batches = iter(loader)
        next(batches)
        train(module, optimizer, batches)
    assert releases(engine) == [(1.0, 2)]


def test_batches_of_two_shuffled_epochs_in_one_step_share_its_noise() -> None:
    engine, module, optimizer, loader = make(sampling="shuffle", noise=2.0)
    batches = iter(loader)
    train(module, optimizer, batches, 1)
    backward(module, batches)
    train(module, optimizer, loader, 1)
    assert releases(engine) == [(2.0, 1), (2.0 / math.sqrt(2), 2)]


def test_two_iterators_in_turns_are_refused() -> None:
    engine, module, optimizer, loader = make(sampling="shuffle", max_physical_batch_size=3)
    first, second = iter(loader), iter(loader)
    train(module, optimizer, first, 4)
    train(module, optimizer, second, 1)
    with pytest.raises(InvalidInput, match="another iterator over this loader was begun"):
        next(first)
    train(module, optimizer, second)
    assert sum(event.steps for event in engine.accountant.history) == 3


def test_a_layer_that_is_frozen_later_stays_as_it_is() -> None:
    _, module, optimizer, loader = make()
    train(module, optimizer, loader, 2)
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    train(module, optimizer, loader, 2)
    assert torch.equal(module[0].weight, before)
    assert module[0].weight.grad is None
    assert module[2].weight.grad is not None


def test_gradients_that_are_not_finite_count_as_zero() -> None:
    x, y = data().tensors
    spoilt, weights = x.clone(), torch.ones(N)
    spoilt[3], spoilt[5, 0] = math.nan, math.inf
    weights[[3, 5]] = 0
    results = []
    for values, counted in ((spoilt, torch.ones(N)), (x, weights)):
        _, module, optimizer, loader = make(noise=1e-9, batch=N, sampling="fixed", norm=0.1)
        next(iter(loader))
        (F.cross_entropy(module(values), y, reduction="none") * counted).mean().backward()
        optimizer.step()
        results.append([p.grad for p in module.parameters()])
    for one, other in zip(*results, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other)


def test_the_loop_goes_on_in_evaluation_mode_without_gradients() -> None:
    _, module, optimizer, loader = make()
    train(module, optimizer, loader, 2)
    x, _ = data().tensors
    with torch.no_grad():
        module.eval()
        assert module(x).shape == (N, 2)


def test_a_copy_that_averages_weights_is_an_ordinary_module() -> None:
    _, module, optimizer, loader = make()
    train(module, optimizer, loader, 1)
    average = torch.optim.swa_utils.AveragedModel(module)
    train(module, optimizer, loader, 2)
    average.update_parameters(module)
    average(data().tensors[0]).sum().backward()
    assert all(p.grad is not None for p in average.parameters())
    train(module, optimizer, loader, 1)


def test_batches_come_from_worker_processes_too() -> None:
    workers = DataLoader(data(), batch_size=BATCH, num_workers=1)
    engine, *made = make(loader=workers, max_physical_batch_size=5)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        train(*made)
    (event,) = engine.accountant.history
    assert event.steps == N // BATCH


def test_a_padding_row_is_not_trained() -> None:
    words = Made(
        lambda self, ids: self.embedding(ids).sum(1), embedding=nn.Embedding(4, 3, padding_idx=1)
    )
    dataset = TensorDataset(torch.randint(4, (N, 9)), torch.zeros(N, dtype=torch.long))
    _, module, optimizer, loader = make(module=words, dataset=dataset)
    train(module, optimizer, loader)
    weight = module.embedding.weight
    assert not weight[1].any()
    assert weight.grad[[0, 2, 3]].all()


def test_nothing_tells_how_many_records_there_are_or_were_drawn(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "numba")  # which tells of what it compiles first
    with warnings.catch_warnings(action="error"):
        engine, module, optimizer, loader = make(dataset=data(59))
        train(module, optimizer, loader)
    assert "".join(capfd.readouterr()) == caplog.text == ""
    with pytest.raises(InvalidInput) as refused:
        make(dataset=data(59), batch=60)
    assert "59" not in str(refused.value)
    assert set(engine.state_dict()["accountant"]["history"][0]) == {
        "noise_multiplier",
        "sampling",
        "steps",
    }


@pytest.mark.parametrize("records", [64, 65, 71])
def test_the_rate_is_that_of_the_records_not_of_the_batches(records: int) -> None:
    engine, module, optimizer, loader = make(dataset=data(records))
    train(module, optimizer, loader, 1)
    (event,) = engine.accountant.history
    assert event.sampling == PoissonSampling(BATCH / records)
