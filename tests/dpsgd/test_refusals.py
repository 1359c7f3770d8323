"""What the engine must not let through."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import Made, With
from private import BATCH, N, backward, data, make, model, sized, train
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, WeightedRandomSampler

from dpsgd import PrivacyEngine
from dpsgd.accounting import CentralLimitApproximation
from dpsgd.clipping.policies import PerLayerClipping
from ldp import InvalidInput


@pytest.mark.parametrize("value", [-1.0, 0.0, math.nan, math.inf, "1", True])
def test_bad_noise_and_norms_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="noise_multiplier must be finite and > 0"):
        make(noise=value)
    with pytest.raises(InvalidInput, match="max_grad_norm must be finite and > 0"):
        make(norm=value)


@pytest.mark.parametrize(
    "options", [{"norm": 1e-306}, {"norm": 1e-320}, {"norm": 1e300}, {"noise": 1e-300}]
)
def test_norms_and_noise_that_no_grid_fits_are_refused(options: dict[str, float]) -> None:
    module = model()
    with pytest.raises(InvalidInput, match="between 1e-280 and 1e280"):
        make(module=module, **options)
    engine, module, optimizer, loader = make(module=module)  # nothing was changed
    engine.max_grad_norm = options.get("norm", 1.0)
    engine.noise_multiplier = options.get("noise", 1.0)
    with pytest.raises(InvalidInput, match="between 1e-280 and 1e280"):
        train(module, optimizer, loader)
    assert not engine.accountant.history


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
def test_a_group_without_values_is_stepped_on() -> None:
    module = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 0))
    policy = PerLayerClipping({"0": 1.0, "1": 1.0})
    engine, _, optimizer, loader = make(module=module, norm=policy)
    x, _ = next(iter(loader))
    module(x).sum().backward()
    optimizer.step()
    assert engine.accountant.history[0].steps == 1


@pytest.mark.parametrize(
    ("layer", "advice"),
    [
        (nn.BatchNorm1d(4), "use GroupNorm"),
        (nn.BatchNorm2d(4, affine=False), "use GroupNorm"),
        (nn.BatchNorm1d(4).eval(), "use GroupNorm"),
        (nn.SyncBatchNorm(4), "use GroupNorm"),
        (nn.LazyBatchNorm1d(), "no shape yet"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(4, 4, max_norm=1.0), "max_norm=None"),
        (nn.Embedding(4, 4, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
        (nn.EmbeddingBag(4, 4, mode="max"), '"mean" or "sum"'),
        (nn.Linear(4, 4, dtype=torch.complex64), "take real ones"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_layers_that_mix_samples_are_refused(layer: nn.Module, advice: str) -> None:
    with pytest.raises(InvalidInput, match=advice):
        make(module=nn.Sequential(nn.Linear(4, 4), layer))


def test_parameters_on_several_devices_are_refused() -> None:
    with pytest.raises(InvalidInput, match="parameters are on cpu, meta: move it to one device"):
        make(module=nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2, device="meta")))


def _with_a_forward_of_its_own(layer: nn.Module) -> nn.Module:
    layer.forward = lambda x: F.linear(2 * x, layer.weight)
    return layer


@pytest.mark.filterwarnings("ignore")  # torch warns of two of them itself
@pytest.mark.parametrize(
    ("wrap", "advice"),
    [
        (nn.DataParallel, "use DistributedDataParallel"),
        (torch.jit.script, "use the module that it was made of"),
        pytest.param(torch.compile, "leave out torch.compile", marks=pytest.mark.slow),
        (type("OptimizedModule", (nn.Sequential,), {}), "leave out torch.compile"),
        (lambda layer: layer.compile() or layer, "leave out torch.compile"),
        (_with_a_forward_of_its_own, "a class of its own"),
        (nn.utils.weight_norm, "torch.nn.utils.parametrizations"),
        (nn.utils.parametrizations.spectral_norm, "use weight_norm"),
        (lambda layer: prune.random_unstructured(layer, "weight", 0.5), "prune.remove"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrappers_that_hide_a_layer_are_refused(wrap: Any, advice: str) -> None:
    with pytest.raises(InvalidInput, match=advice):
        make(module=nn.Sequential(nn.Linear(4, 4), wrap(nn.Linear(4, 4))))


def after(mix: Callable[[Tensor], Tensor]) -> nn.Module:
    """A linear layer after something that may see the whole batch."""
    return Made(lambda self, x: self.layer(mix(x)), layer=nn.Linear(4, 2))


def _shuffled(layer: nn.Module, x: Tensor) -> Tensor:
    """Run a layer on another order each time, of no generator of torch's, and undo it."""
    order = torch.arange(len(x)).roll(next(_COUNTER))
    return layer(x[order])[order.argsort()]


_COUNTER = itertools.count()
MIXTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "minus the batch's mean": lambda x: x - x.mean(0),
    "softmax over the batch": lambda x: torch.softmax(x, 0),
    "scaled by the batch's largest": lambda x: x / x.abs().max(),
    "its neighbour's": lambda x: x.roll(1, 0),
    "attention over the batch": lambda x: torch.softmax(x @ x.T, 1) @ x,
    "functional batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "sorted": lambda x: x.sort(0).values,
    "softmax over a batch of rank 3": lambda x: nn.Softmax(dim=0)(x[:, None])[:, 0],
}
MIXING = {name: after(mix) for name, mix in MIXTURES.items()}
MIXING["sorted between layers"] = Made(
    lambda self, x: self.layer(self.first(x)[x[:, 0].argsort()])[x[:, 0].argsort().argsort()],
    first=nn.Linear(4, 4),
    layer=nn.Linear(4, 2),
)
MIXING["shuffled between layers"] = Made(
    lambda self, x: _shuffled(self.layer, self.first(x)),
    first=nn.Linear(4, 4),
    layer=nn.Linear(4, 2),
)
MIXING["mean of the class tokens"] = With(
    lambda self, x: (
        self.layer(x) + torch.cat([self.p.expand(len(x), 1, 2), x[:, None, :2]], 1)[:, 0].mean(0)
    ),
    (1, 1, 2),
    layer=nn.Linear(4, 2),
)
MIXING["mean of an embedded id that all have"] = Made(
    lambda self, x: self.layer(x + self.ids(torch.zeros(len(x), dtype=torch.long)).mean(0)),
    ids=nn.Embedding(2, 4),
    layer=nn.Linear(4, 2),
)
MIXING["a frozen GRU that takes the batch for time"] = Made(
    lambda self, x: self.layer(self.gru(x[:, None])[0][:, 0]),
    gru=nn.GRU(4, 4).requires_grad_(False),
    layer=nn.Linear(4, 2),
)


@pytest.mark.parametrize("name", MIXING)
def test_a_forward_that_mixes_samples_is_refused(name: str) -> None:
    engine, module, _, loader = make(module=MIXING[name])
    x, _ = next(iter(loader))
    with pytest.raises(InvalidInput, match=r"normalise within a sample \(GroupNorm, LayerNorm\)"):
        module(x)
    assert engine.accountant.history == ()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("first", [2, 5], ids=["batch of 2", "batch of 5"])
def test_a_loss_within_the_module_must_be_the_mean_or_the_sum_of_the_samples_own(
    dropout: float, first: int
) -> None:
    def tokens(self: Any, x: Tensor, reduction: str) -> Any:
        out = self.layer(F.dropout(x, dropout))[:, None].expand(-1, 3, -1)
        targets = torch.where(torch.arange(3) <= (x[:, :1] > 0), 1, -100)  # one or two of them
        losses = F.cross_entropy(out.mT, targets, reduction="none")
        own = losses.sum(1) / (targets >= 0).sum(1)
        means = {"tokens": losses.sum() / (targets >= 0).sum(), "samples": own.mean()}
        return {"loss": means.get(reduction, own.sum()), "logits": out}

    def run(reduction: str) -> None:
        module = Made(lambda self, x: tokens(self, x, reduction), layer=nn.Linear(4, 2))
        x = torch.randn(10, 4)
        x[:, 0] = torch.tensor([1.0, -1.0] * 5)
        dataset = torch.utils.data.TensorDataset(x, x)
        _, module, optimizer, loader = make(sized(first), module=module, dataset=dataset)
        for x, _ in loader:
            module(x)["loss"].backward()
            optimizer.step()

    run("samples")
    run("sum")
    with pytest.raises(InvalidInput, match="neither the mean nor the sum of their own"):
        run("tokens")


def test_a_module_is_tried_once() -> None:
    calls = []

    def count(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x

    _, module, optimizer, loader = make(module=after(count))
    sizes = train(module, optimizer, loader)
    assert calls[-len(sizes) :] == sizes
    # Two in both orders, each with copies, and twice more as the two outputs are as many.
    assert len(calls) - len(sizes) == 6


def test_mixing_is_found_though_the_first_batch_was_in_evaluation_mode() -> None:
    module = Made(
        lambda self, x: self.layer(x.roll(1, 0) if self.training else x), layer=nn.Linear(4, 2)
    )
    _, module, _, loader = make(module=module.eval())
    x, _ = next(iter(loader))
    module(x)
    with pytest.raises(InvalidInput, match="normalise within a sample"):
        module.train()(x)


def test_mixing_is_found_though_the_first_batch_was_one_sample() -> None:
    _, module, _, loader = make(sized(1), module=MIXING["its neighbour's"])
    with pytest.raises(InvalidInput, match="normalise within a sample"):
        module(next(iter(loader))[0])


@pytest.mark.parametrize(
    "change",
    [lambda x: x - x.mean(1, keepdim=True), F.dropout, lambda x: x + torch.randn_like(x)],
    ids=["normalised within", "dropout", "random"],
)
def test_a_forward_that_does_not_mix_samples_passes(change: Callable[[Tensor], Tensor]) -> None:
    _, module, optimizer, loader = make(module=after(change))
    train(module, optimizer, loader)


@pytest.mark.parametrize(
    "layer",
    [nn.MultiheadAttention(4, 2), nn.GRU(4, 4)],
    ids=["attention", "gru"],
)
def test_a_sequence_layer_that_takes_the_batch_for_time_is_refused(layer: nn.Module) -> None:
    def confused(self: Any, x: Tensor) -> Tensor:
        rows = x[:, None].expand(-1, 3, -1)
        out = self.layer(rows) if isinstance(layer, nn.GRU) else self.layer(rows, rows, rows)
        return out[0].sum(1)

    _, module, _, loader = make(module=Made(confused, layer=layer))  # without batch_first=True
    x, _ = next(iter(loader))
    with pytest.raises(InvalidInput, match="to be dimension 1"):
        module(x)


@pytest.mark.parametrize("most", [None, 1], ids=["", "one by one"])
def test_a_forward_that_keeps_what_it_saw_is_refused(most: int | None) -> None:
    def remember(self: Any, x: Tensor) -> Tensor:
        self.calls += 1
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.layer(x)

    def remembering() -> nn.Module:
        return Made(remember, layer=nn.Linear(4, 2), mean=torch.zeros(4), calls=torch.zeros(()))

    _, module, optimizer, loader = make(module=remembering().eval())
    train(module, optimizer, loader, 1)
    assert module.calls == 1  # trying it out leaves no trace
    _, module, _, loader = make(module=remembering(), max_physical_batch_size=most)
    with pytest.raises(InvalidInput, match="buffer mean, without noise"):
        module(next(iter(loader))[0])
    assert module.mean.tolist() == [0] * 4


def test_a_buffer_that_moves_by_little_of_its_size_is_refused() -> None:
    def count(self: Any, x: Tensor) -> Tensor:
        self.total += x.detach().mean(0)
        return self.layer(x)

    counting = Made(count, layer=nn.Linear(4, 2), total=torch.full((4,), 1e6))
    _, module, _, loader = make(module=counting)
    with pytest.raises(InvalidInput, match="buffer total, without noise"):
        module(next(iter(loader))[0])


@pytest.mark.parametrize("name", ["layer", "frozen"])
def test_a_forward_that_changes_parameters_is_refused(name: str) -> None:
    def remember(self: Any, x: Tensor) -> Tensor:
        self.get_submodule(name).weight.data.copy_(x[:2])
        return self.layer(x)

    layers = {"layer": nn.Linear(4, 2), "frozen": nn.Linear(4, 2).requires_grad_(False)}
    before = layers[name].weight.tolist()
    _, module, _, loader = make(module=Made(remember, **layers))
    with pytest.raises(InvalidInput, match="changes its parameters"):
        module(next(iter(loader))[0])
    assert layers[name].weight.tolist() == before


def test_a_forward_that_was_interrupted_leaves_nothing() -> None:
    def run(self: Any, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return self.layer(x)

    _, module, optimizer, loader = make(
        module=Made(run, layer=nn.Linear(4, 2), calls=torch.zeros(()))
    )
    with pytest.raises(KeyboardInterrupt):
        train(module, optimizer, loader)
    train(module, optimizer, loader)


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SparseAdam])
def test_optimizers_that_cannot_take_noise_are_refused(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot step on noisy gradients"):
        make(optimizer=kind)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch, on a trial
def test_activation_checkpointing_by_a_second_backward_pass_is_refused() -> None:
    recomputing = Made(
        lambda self, x: self.last(checkpoint(self.middle, self.first(x), use_reentrant=True)),
        **{name: nn.Linear(4, 4) for name in ("first", "middle", "last")},
    )
    _, module, _, loader = make(module=recomputing)
    x, y = next(iter(loader))
    loss = F.cross_entropy(module(x), y)
    with pytest.raises(InvalidInput, match=r"middle: .* checkpoint with use_reentrant=False"):
        loss.backward()


def test_a_gradient_scaler_makes_no_step() -> None:
    _, module, optimizer, loader = make()
    x, y = next(iter(loader))
    scaler = torch.amp.GradScaler("cpu")
    before = [p.detach().clone() for p in module.parameters()]
    scaler.scale(F.cross_entropy(module(x), y)).backward()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.step(optimizer)
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))


class Failing(torch.autograd.Function):
    """The identity, whose backward pass fails where it is told to."""

    fail = False

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        if Failing.fail and grads[0].numel():
            raise ArithmeticError("out of memory, say")
        return grads[0]


def failing() -> nn.Module:
    layers = {"first": nn.Linear(4, 4), "second": nn.Linear(4, 2)}
    return Made(lambda self, x: self.second(Failing.apply(self.first(x))), **layers)


def test_what_a_backward_pass_that_failed_has_left_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Failing, "fail", True)
    _, module, optimizer, loader = make(module=failing(), noise=1e-12, norm=0.1, batch=1)
    sizes = []
    for x, y in loader:
        loss = F.cross_entropy(module(x), y, reduction="mean")
        if Failing.fail and len(x):
            with pytest.raises(ArithmeticError):
                loss.backward()
            Failing.fail = False
        else:
            loss.backward()
            sizes.append(len(x))
        optimizer.step()
        # What failed was a record that would count for 0.1 of its own.
        norm = torch.cat([p.grad.flatten() for p in module.parameters()]).norm()
        assert norm <= 0.1 * (sizes[-1] if sizes else 0) + 1e-6
    assert max(sizes) > 0


@pytest.mark.parametrize(
    ("criterion", "advice"),
    [
        (nn.CrossEntropyLoss(reduction="sum"), "loss_reduction says"),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), "weights of the whole batch"),
        (nn.CrossEntropyLoss(ignore_index=0), "how many targets of the batch are kept"),
    ],
    ids=["sum", "weighted", "ignoring"],
)
def test_losses_that_are_reduced_otherwise_are_refused(criterion: nn.Module, advice: str) -> None:
    with pytest.raises(InvalidInput, match=advice):
        make(criterion=criterion)


def test_loaders_with_a_sampling_of_their_own_are_refused() -> None:
    weighted = WeightedRandomSampler([1.0] * N, N)
    with pytest.raises(InvalidInput, match="WeightedRandomSampler draws records with a rate"):
        make(loader=DataLoader(data(), batch_size=BATCH, sampler=weighted))
    with pytest.raises(InvalidInput, match="batch_size"):
        make(loader=DataLoader(data(), batch_size=None))
    with pytest.raises(InvalidInput, match="sampling must be one of"):
        make(sampling="shuffled")


def test_batches_of_another_loader_are_refused() -> None:
    _, module, optimizer, _ = make()
    x, y = data().tensors
    with pytest.raises(InvalidInput, match="no batch was drawn"):
        F.cross_entropy(module(x), y).backward()
    with pytest.raises(InvalidInput, match="without a batch drawn"):
        optimizer.step()


def test_a_batch_with_records_repeated_is_refused() -> None:
    _, module, _, loader = make()
    x, y = next(iter(loader))
    with pytest.raises(InvalidInput, match="each record once"):
        F.cross_entropy(module(torch.cat([x, x])), torch.cat([y, y])).backward()


@pytest.mark.parametrize("size", [1, 4])
def test_a_batch_in_chunks_is_refused_since_records_of_one_place_would_be_clipped_together(
    size: int,
) -> None:
    _, module, _, loader = make(sampling="fixed")
    x, y = next(iter(loader))
    chunks = zip(x.split(size), y.split(size), strict=True)
    with pytest.raises(InvalidInput, match="the whole batch at once"):
        sum(F.cross_entropy(module(a), b, reduction="sum") for a, b in chunks).backward()


def test_two_batches_in_one_backward_pass_are_refused() -> None:
    _, module, _, loader = make(sampling="fixed")
    losses = [F.cross_entropy(module(x), y) for x, y in itertools.islice(loader, 2)]
    with pytest.raises(InvalidInput, match="before the next is drawn"):
        sum(losses).backward()


def test_a_backward_pass_that_failed_may_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = []
    for fails in (False, True):
        torch.manual_seed(0)
        _, module, optimizer, loader = make(module=failing(), noise=1e-9)
        x, y = next(iter(loader))
        if fails:
            with monkeypatch.context() as patch, pytest.raises(ArithmeticError):
                patch.setattr(Failing, "fail", True)
                F.cross_entropy(module(x), y).backward()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        sums.append(torch.cat([p.grad.flatten() for p in module.parameters()]))
    torch.testing.assert_close(*sums)
    assert sums[0].norm() > 0.01


def test_a_second_backward_pass_for_one_batch_is_refused() -> None:
    _, module, _, loader = make()
    x, y = next(iter(loader))
    F.cross_entropy(module(x), y).backward()
    with pytest.raises(InvalidInput, match="second backward"):
        F.cross_entropy(module(x), y).backward()


def test_a_second_step_for_one_batch_is_refused() -> None:
    _, module, optimizer, loader = make()
    train(module, optimizer, loader, 1)
    with pytest.raises(InvalidInput, match="one batch, one step"):
        optimizer.step()


class Calling(torch.optim.SGD):
    """An optimizer whose step calls its parent's, and fails where it is told to."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        if self.fails:
            raise RuntimeError("failed")


def test_a_step_that_calls_its_parents_releases_once() -> None:
    make()  # torch puts hooks on the parent's step when there is one
    engine, module, optimizer, loader = make(optimizer=Calling)
    train(module, optimizer, loader, 2)
    with pytest.raises(InvalidInput, match="one batch, one step"):
        optimizer.step()
    optimizer.fails = True
    with pytest.raises(RuntimeError, match="failed"):
        train(module, optimizer, loader, 1)
    optimizer.fails = False
    train(module, optimizer, loader, 2)
    assert [event.steps for event in engine.accountant.history] == [5]


def test_a_weight_that_is_used_outside_of_its_layer_is_refused() -> None:
    reaching = Made(
        lambda self, x: self.inner(x) + F.linear(x, self.inner.weight), inner=nn.Linear(4, 2)
    )
    _, module, _, loader = make(module=reaching)
    with pytest.raises(InvalidInput, match=r"inner\.weight was used outside"):
        backward(module, iter(loader))


def test_packed_sequences_are_refused() -> None:
    def pack(self: Any, x: Tensor) -> Tensor:
        rows = x.view(len(x), 2, 2)
        lengths = torch.full((len(x),), 2)
        packed = nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True)
        return self.rnn(packed)[1][0]

    _, module, _, loader = make(module=Made(pack, rnn=nn.GRU(2, 3, batch_first=True)))
    with pytest.raises(InvalidInput, match="padded batch"):
        module(next(iter(loader))[0])


def test_a_parameter_that_is_thawed_later_is_refused() -> None:
    module = model()
    module[0].requires_grad_(False)
    _, module, optimizer, loader = make(module=module)
    module[0].requires_grad_(True)
    x, y = next(iter(loader))
    F.cross_entropy(module(x), y).backward()
    with pytest.raises(InvalidInput, match="was frozen"):
        optimizer.step()


def test_samples_folded_into_another_dimension_are_refused() -> None:
    folding = Made(
        lambda self, x: self.inner(x.view(-1, 2)).view(len(x), 4)[:, :2], inner=nn.Linear(2, 2)
    )
    _, module, _, loader = make(module=folding)
    x, _ = next(iter(loader))
    with pytest.raises(InvalidInput, match="a dimension of"):
        module(x)


def test_an_optimizer_without_some_parameters_is_refused() -> None:
    module = model()
    with pytest.raises(InvalidInput, match=r"lacks 2\.weight, 2\.bias"):
        make(module=module, optimizer=lambda _, lr: torch.optim.SGD(module[0].parameters(), lr=lr))


class Around(nn.Module):
    """A parameter of its own, and a layer inside."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(4))
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        return self.layer(F.prelu(x, self.shift))


class Subclassed(nn.LSTM):
    pass


@pytest.mark.parametrize(
    "layer", [Around(nn.GRU(4, 4)), Around(nn.LSTMCell(4, 4)), Subclassed(4, 4)], ids=str
)
def test_a_recurrent_layer_that_no_rule_would_run_is_refused(layer: nn.Module) -> None:
    with pytest.raises(InvalidInput, match=r"^1 \((Around|Subclassed)\) is or has a recurrent"):
        _, module, _, loader = make(module=nn.Sequential(nn.Linear(4, 4), layer))
        module(next(iter(loader))[0])


def test_a_layer_used_within_a_module_without_a_rule_and_outside_of_it_is_refused() -> None:
    shared = nn.Linear(4, 4)
    for layers in ([shared, Around(shared)], [Around(shared), shared]):
        with pytest.raises(InvalidInput, match=r"\(Around\) has a layer inside that is also used"):
            _, module, _, loader = make(module=nn.Sequential(*layers))
            module(next(iter(loader))[0])


def test_a_parameter_that_was_replaced_is_refused() -> None:
    _, module, _, loader = make()
    module.load_state_dict({k: v.clone() for k, v in module.state_dict().items()}, assign=True)
    with pytest.raises(InvalidInput, match=r"^2: has another parameter .* without assign"):
        backward(module, iter(loader))


def test_an_accountant_that_only_approximates_is_refused() -> None:
    with pytest.raises(InvalidInput, match="central_limit_approximation only approximates"):
        make(PrivacyEngine(accountant=CentralLimitApproximation))
