"""Private training on a device that is not the CPU.

On a GPU with CUDA. `test_standin.py` runs the tests that take a `device` on the stand-in as well,
which shows on every machine that tensors stay where they belong. Only a GPU shows how it computes
and rounds: that is for those that take a `gpu`.
"""

import copy
import itertools
import math
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import standin
import torch
from cases import BATCH, LAYERS, MIXED, MIXED_BATCH, OTHERS
from devices import CHOSEN, moved
from models import Attending, Bags, Language, twice
from oracle import Recording, batch_of, by_loop, check, energy, keep
from private import data, make, model
from scipy import stats
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional as F  # noqa: N812
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from dpsgd import AdamBC, PerLayerClipping, PrivacyEngine, QuantileClipping
from dpsgd.clipping.policies import FlatClipping
from dpsgd.federated import Accuracy, Federation, FedMedian, LocalSGD, iid
from dpsgd.gradients.persample import Dense, Outer, gram_squares
from dpsgd.gradients.precision import exact
from dpsgd.layers import convolution
from dpsgd.noise.grid import Grid
from dpsgd.noise.sources import GeneratorNoise
from ldp import InvalidInput
from ldp.testing import SeededCoins

if CHOSEN == standin.NAME:
    standin.register()  # before the first backward pass, which starts a thread for each device
elif not torch.cuda.is_available():
    pytest.skip("needs a GPU with CUDA", allow_module_level=True)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if CHOSEN == standin.NAME:  # torch has no generators of devices made in Python

        def seeded(self: GeneratorNoise, _device: torch.device) -> None:
            self._generator = torch.Generator()
            self._generator.manual_seed(int.from_bytes(os.urandom(7), "little"))

        monkeypatch.setattr(GeneratorNoise, "__init__", seeded)
    return torch.device(CHOSEN, 0)


@pytest.fixture
def gpu() -> torch.device:
    if CHOSEN != "cuda":
        pytest.skip("needs a GPU with CUDA")
    return torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    """Convolutions of a loop and of a batch agree in all bits; private sums do in any setting."""
    torch.manual_seed(7)
    setting: Any = torch.backends.cudnn.conv
    before, setting.fp32_precision = setting.fp32_precision, "ieee"
    yield
    setting.fp32_precision = before


def of(dtype: torch.dtype, value: Any) -> Any:
    """Convert the floating-point numbers of a module or a tensor."""
    floating = isinstance(value, nn.Module) or value.is_floating_point()
    return value.to(dtype) if floating else value


def rows(device: torch.device, n: int = 64) -> TensorDataset:
    """The data of `private.data`, on a device."""
    return TensorDataset(*(t.to(device) for t in data(n).tensors))


def step(module: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(module(x), y).backward()
    optimizer.step()


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", LAYERS)
def test_norms_and_clipped_sums_are_those_of_a_loop(name: str, device: torch.device) -> None:
    build, inputs = LAYERS[name]
    module, given = build(), batch_of(BATCH, inputs)
    check(of(torch.float64, module), of(torch.float64, given), device=device)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", LAYERS)
def test_norms_and_clipped_sums_of_float32_are_those_of_a_loop(
    name: str, gpu: torch.device
) -> None:
    build, inputs = LAYERS[name]
    check(build(), batch_of(BATCH, inputs), tolerance=2e-4, device=gpu)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.filterwarnings("ignore:no rule for")
@pytest.mark.parametrize("name", OTHERS)
def test_layers_without_a_rule_are_as_in_a_loop(name: str, device: torch.device) -> None:
    build, shape = OTHERS[name]
    given = torch.randn(BATCH, *shape)
    check(build().double(), given.double(), device=device)


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"padded": True}, {"add_bias_kv": True, "add_zero_attn": True}],
    ids=["plain", "causal", "padded", "bias_kv and zero_attn"],
)
def test_attention_is_as_in_a_loop(options: dict[str, Any], device: torch.device) -> None:
    keys = torch.randn(BATCH, 3, 4)
    keys[:, 0, 0] = 0
    queries = torch.randn(BATCH, 6, 4).double()
    check(Attending(**options).double(), queries, keys.double(), device=device)


def test_bags_and_tied_tables_and_layers_used_twice_are_as_in_a_loop(device: torch.device) -> None:
    ids = torch.randint(11, (BATCH, 6))
    ids[0, 0], ids[1, 0] = 0, 3
    check(Bags("sum").double(), ids, device=device)
    check(Language("rows of one").double(), torch.randint(17, (BATCH, 9)), device=device)
    wide = torch.randn(BATCH, 3, 20, dtype=torch.float64)
    check(twice(nn.Linear(20, 20)).double(), wide, device=device)


@pytest.mark.parametrize("together", [1, 700, 1 << 27])
@pytest.mark.parametrize("layout", ["channels first", "channels last"])
@pytest.mark.parametrize(
    ("build", "size"),
    [
        (lambda: nn.Conv2d(2, 3, 3, stride=(2, 1), padding=(1, 0)), (6, 5)),
        (lambda: nn.Conv2d(6, 8, 3), (5, 5)),
        (lambda: nn.Conv2d(6, 8, 3), (3, 4)),
        (lambda: nn.Conv2d(1, 4, (12, 2)), (12, 4)),
    ],
    ids=["kept", "formed", "Gram", "rows"],
)
def test_convolutions_in_parts_and_in_either_layout_are_as_in_a_loop(
    build: Callable[[], nn.Module],
    size: tuple[int, ...],
    layout: str,
    together: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(convolution, "_TOGETHER", together)
    layer = build()
    given = torch.randn(7, layer.in_channels, *size)
    if layout == "channels last":
        layer = layer.to(memory_format=torch.channels_last)
        given = given.contiguous(memory_format=torch.channels_last)
    check(layer.double(), given.double(), device=device)


def test_a_model_in_channels_last_trains_as_one_that_is_not(device: torch.device) -> None:
    def parameters(layout: torch.memory_format) -> list[Tensor]:
        torch.manual_seed(3)
        module = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(16, 2)
        )
        x = torch.randn(16, 3, 6, 6)
        module = module.to(memory_format=layout).to(device)
        dataset = TensorDataset(x.to(device), (x.sum((1, 2, 3)) > 0).long().to(device))
        _, module, optimizer, loader = make(
            PrivacyEngine(coins=SeededCoins(1), secure_mode=True),
            module=module,
            dataset=dataset,
            noise=1e-9,
        )
        for images, labels in loader:
            step(module, optimizer, images.to(memory_format=layout), labels)
        return [p.detach().cpu() for p in module.parameters()]

    for one, other in zip(
        parameters(torch.contiguous_format), parameters(torch.channels_last), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", MIXED)
def test_under_autocast_norms_are_those_of_a_loop(name: str, gpu: torch.device) -> None:
    build, inputs = MIXED[name]
    module, given = build().to(gpu), batch_of(MIXED_BATCH, inputs).to(gpu)

    def loss(output: object) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            first = output[0] if isinstance(output, tuple) else output
            return energy(first.float())  # type: ignore[attr-defined]

    policy = Recording(1e9)
    with torch.autocast("cuda", dtype=torch.bfloat16), warnings.catch_warnings(action="ignore"):
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


@pytest.mark.parametrize("value", [None, 0.7, 0.30001], ids=["random", "0.7", "0.30001"])
@pytest.mark.parametrize("size", [1000, 10_000, 1_000_033])
def test_the_norm_of_many_values_is_not_too_small(
    size: int, value: float | None, device: torch.device
) -> None:
    many = torch.rand(2, size) + 0.5 if value is None else torch.full((2, size), value)
    one = torch.full((2, 1), 0.9)
    exact_norms = many.double().norm(dim=1)
    for form, norms in (
        (Dense(many.to(device)), exact_norms),
        (
            Outer(one[:, None].to(device), many[:, None].to(device), torch.Size((size, 1))),
            exact_norms * float(one[0]),
        ),
    ):
        totals = torch.zeros(2, dtype=torch.float64, device=device)
        form.add_squared_norms(totals)
        found = totals.cpu().sqrt()
        assert (found <= norms * (1 + 2e-5)).all()
        factors = FlatClipping(1.0).factors(found.float()[None])[0]
        assert (factors.double() * norms <= 1).all()


def test_the_norm_by_gram_matrices_is_not_too_small(gpu: torch.device) -> None:
    for positions, d, p in ((32, 64, 64), (128, 512, 512), (1024, 256, 256), (64, 8192, 64)):
        for a, b in ((0.7, 0.30001), (0.70001, 1.1), (0.333, 0.777)):
            inputs = torch.full((1, positions, d), a, device=gpu)
            outputs = torch.full((1, positions, p), b, device=gpu)
            true = (outputs.double().mT @ inputs.double()).flatten(1).norm()
            with exact("cuda"):
                assert gram_squares(inputs, outputs).double().sqrt() >= true * (1 - 4e-7)


@pytest.mark.parametrize("setting", ["matmul", "legacy", "convolution"])
def test_norms_and_sums_are_computed_with_all_bits(setting: str, gpu: torch.device) -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no TensorFloat-32")
    backends: Any = torch.backends
    inputs, grads = torch.randn(6, 16, 12, 12, device=gpu), torch.randn(6, 32, 10, 10, device=gpu)
    layer = nn.Conv2d(16, 32, 3).to(gpu)
    matrix = torch.randn(256, 256, device=gpu)
    true = matrix.double() @ matrix.double()
    before = backends.cudnn.conv.fp32_precision
    try:
        backends.cudnn.conv.fp32_precision = "tf32"
        if setting == "matmul":
            torch.set_float32_matmul_precision("high")
        elif setting == "legacy":
            backends.cuda.matmul.allow_tf32 = True
        if setting != "convolution":
            assert (matrix @ matrix - true).norm() > 1e-4 * true.norm()
        with exact("cuda"):
            assert (matrix @ matrix - true).norm() < 1e-6 * true.norm()
            summed = convolution._summed(layer, [0, 0], inputs, grads)
        policy = Recording(1e9)
        keeper = keep(layer, policy)
        (layer(inputs) * grads).sum().backward()
        assert backends.cudnn.conv.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision("highest")
        backends.cudnn.conv.fp32_precision = before
    weights = layer.weight.detach().double().requires_grad_()
    samples = [
        torch.autograd.grad((F.conv2d(x[None].double(), weights) * g).sum(), [weights])[0]
        for x, g in zip(inputs, grads.double(), strict=True)
    ]
    expected = torch.stack(samples)
    biases = grads.double().sum((2, 3))
    norms = (expected.flatten(1).square().sum(1) + biases.square().sum(1)).sqrt()
    torch.testing.assert_close(policy.norms.double(), norms, rtol=2e-5, atol=0)
    weight, _ = keeper.take_sums()
    for found in (weight, summed):
        assert (found.double() - expected.sum(0)).norm() < 2e-6 * expected.sum(0).norm()


@pytest.mark.parametrize("secure", [False, True], ids=["fast", "secure"])
def test_noise_is_normal_and_never_repeats(secure: bool, device: torch.device) -> None:
    module = nn.Linear(400, 50, bias=False).to(device)
    _, module, optimizer, loader = make(
        PrivacyEngine(secure_mode=secure),
        module=module,
        dataset=TensorDataset(torch.zeros(16, 400, device=device)),
        noise=3.0,
        norm=0.5,
        batch=4,
    )
    seen = []
    for (x,) in loader:
        module(x).sum().backward()
        optimizer.step()
        assert module.weight.grad.device.type == device.type
        assert module.weight.grad.dtype == torch.float32
        seen.append(module.weight.grad.cpu().double().flatten() * 4 / (3.0 * 0.5))
    for noise in seen:
        assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-4
    for one, other in itertools.combinations(seen, 2):
        assert abs(float((one * other).mean())) < 5 / math.sqrt(one.numel())
        assert not torch.isin(one, other).all()


def test_noise_of_the_default_generator_has_all_bits_and_no_seed_of_torch(
    device: torch.device,
) -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        values = torch.empty(100_000, dtype=torch.float64, device=device)
        GeneratorNoise(device).fill(values)
        drawn.append(values.cpu())
    for values in drawn:
        assert stats.kstest(values.numpy(), "norm").pvalue > 1e-4
        assert (values != values.float().double()).double().mean() > 0.99
    assert torch.cat(drawn).unique().numel() > 199_990


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_device_releases_what_a_cpu_does(dtype: torch.dtype, device: torch.device) -> None:
    grid, summed = Grid(2.0**-20), torch.randn(10_000, dtype=dtype)
    normal = torch.randn(10_000, dtype=torch.float64)
    there = summed.to(device)
    grid.release(there, normal.to(device), 0.7, 100.0)
    grid.release(summed, normal, 0.7, 100.0)
    assert torch.equal(summed, there.cpu())


@pytest.mark.parametrize("secure", [False, True], ids=["fast", "secure"])
def test_what_is_released_are_multiples_of_a_public_grid(
    secure: bool, device: torch.device
) -> None:
    _, module, optimizer, loader = make(
        PrivacyEngine(secure_mode=secure),
        module=nn.Linear(30, 20, bias=False, dtype=torch.float64).to(device),
        dataset=TensorDataset(torch.randn(8, 30, dtype=torch.float64).to(device)),
        loss_reduction="sum",
        norm=0.5,
        batch=4,
    )
    for (x,) in loader:
        module(x).square().sum().backward()
        optimizer.step()
        multiples = module.weight.grad.cpu() / Grid.for_sums(0.5, 600, 0.5).spacing
        assert torch.equal(multiples, multiples.round())
        assert multiples.abs().max() > 4096


def trained(device: torch.device, *, secure: bool, **options: Any) -> tuple[Tensor, list[float]]:
    """Take three steps on all of the data; return the last gradient, and the norm at each batch."""
    engine, module, optimizer, loader = make(
        PrivacyEngine(secure_mode=secure, coins=SeededCoins(4)),
        module=model().to(device),
        dataset=rows(device),
        sampling="fixed",
        batch=64,
        **options,
    )
    trail = []
    for _ in range(3):
        for x, y in loader:
            step(module, optimizer, x, y)
            trail.append(engine.max_grad_norm)
    gradient = torch.cat([p.grad.flatten() for p in module.parameters()])
    assert gradient.device.type == device.type
    return gradient.cpu(), trail


def test_seeded_coins_repeat_noise_in_the_secure_mode_alone(device: torch.device) -> None:
    secure = [trained(device, secure=True)[0] for _ in range(2)]
    torch.testing.assert_close(*secure, rtol=1e-4, atol=1e-6)
    fast = [trained(device, secure=False)[0] for _ in range(2)]
    assert not (fast[0] == fast[1]).any()


@pytest.mark.parametrize("secure", [False, True], ids=["fast", "secure"])
@pytest.mark.parametrize(
    "norm",
    [
        0.3,
        QuantileClipping(0.1, rate=0.5, count_noise=1e-5),
        PerLayerClipping({"0": 0.2, "2.weight": 0.3, "2": 0.1}),
    ],
    ids=["flat", "adaptive", "per layer"],
)
def test_steps_are_those_of_a_cpu(norm: Any, secure: bool, device: torch.device) -> None:
    options = {"noise": 1e-6, "norm": norm, "max_physical_batch_size": 24}
    (cpu, norms), (there, others) = (
        trained(place, secure=secure, **options) for place in (torch.device("cpu"), device)
    )
    assert cpu.norm() > 1e-3
    assert len(norms) == 9
    assert len(set(norms)) == (4 if isinstance(norm, QuantileClipping) else 1)
    assert others == pytest.approx(norms, rel=1e-3)
    torch.testing.assert_close(there, cpu, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("secure", [False, True], ids=["fast", "secure"])
def test_empty_batches_are_stepped_on(secure: bool, device: torch.device) -> None:
    engine, module, optimizer, loader = make(
        PrivacyEngine(secure_mode=secure, coins=SeededCoins(1)),
        module=model().to(device),
        dataset=rows(device, 6),
        batch=1,
    )
    for _ in range(4):
        for x, y in loader:
            assert x.device.type == device.type
            step(module, optimizer, x, y)
    assert sum(event.steps for event in engine.accountant.history) == 4 * len(loader)
    assert all(bool(p.isfinite().all()) for p in module.parameters())


@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adagrad,
        AdamBC,
        lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
    ],
    ids=["Adam", "AdamW", "Adagrad", "AdamBC", "momentum"],
)
def test_a_run_that_was_broken_off_goes_on_from_a_file(
    optimizer: Callable[..., torch.optim.Optimizer], device: torch.device, tmp_path: Path
) -> None:
    def made(place: torch.device) -> Any:
        return make(
            module=model().to(place),
            dataset=rows(place),
            optimizer=optimizer,
            sampling="fixed",
            batch=64,
            noise=1e-9,
        )

    def trained(made: Any, epochs: int) -> None:
        _, module, stepper, loader = made
        for _ in range(epochs):
            for x, y in loader:
                step(module, stepper, x, y)

    whole = made(torch.device("cpu"))
    trained(whole, 4)
    half = made(device)
    trained(half, 2)
    engine, module, stepper, _ = half
    assert any(
        isinstance(v, Tensor) and v.ndim and v.device.type == device.type
        for state in stepper.state.values()
        for v in state.values()
    )

    def at_home(value: Any) -> Any:
        return torch.utils._pytree.tree_map(
            lambda v: v.cpu() if isinstance(v, Tensor) else v, value
        )

    saved = {"engine": engine.state_dict(), "module": at_home(dict(module.state_dict()))}
    torch.save(saved | {"optimizer": at_home(stepper.state_dict())}, tmp_path / "checkpoint")
    loaded = torch.load(tmp_path / "checkpoint")
    other = made(device)
    other[1].load_state_dict(loaded["module"])
    other[2].load_state_dict(loaded["optimizer"])
    other[0].load_state_dict(loaded["engine"])
    trained(other, 2)
    for one, two in zip(whole[1].parameters(), other[1].parameters(), strict=True):
        torch.testing.assert_close(two.detach().cpu(), one.detach(), rtol=1e-3, atol=1e-4)
    assert other[0].get_epsilon(1e-5) == whole[0].get_epsilon(1e-5)


def test_data_of_the_cpu_trains_a_model_elsewhere(device: torch.device) -> None:
    _, module, optimizer, loader = make(
        module=model().to(device), noise=0.3, dataset=data(512), batch=64
    )
    for _ in range(6):
        for x, y in loader:
            step(module, optimizer, x.to(device), y.to(device))
    x, y = (t.to(device) for t in data(512).tensors)
    with torch.no_grad():
        assert float((module(x).argmax(1) == y).float().mean()) > 0.8


@pytest.mark.parametrize("secure", [False, True], ids=["fast", "secure"])
def test_a_record_that_is_not_finite_counts_as_zero(secure: bool, device: torch.device) -> None:
    x = torch.ones(8, 4)
    x[3, 1] = math.inf
    _, module, optimizer, loader = make(
        PrivacyEngine(secure_mode=secure),
        module=nn.Linear(4, 2, bias=False).to(device),
        dataset=TensorDataset(x.to(device)),
        sampling="fixed",
        noise=1e-9,
        norm=0.5,
        loss_reduction="sum",
    )
    (x,) = next(iter(loader))
    module(x).sum().backward()
    optimizer.step()
    assert float(module.weight.grad.norm()) == pytest.approx(7 * 0.5, rel=1e-4)


def test_a_module_that_was_moved_after_make_private_is_refused(gpu: torch.device) -> None:
    for before, after in itertools.permutations([torch.device("cpu"), gpu]):
        _, module, _, loader = make(module=model().to(before))
        module.to(after)
        x, y = next(iter(loader))
        loss = F.cross_entropy(module(x.to(after)), y.to(after))
        with pytest.raises(InvalidInput, match=f"was on {before}.*move the module before"):
            loss.backward()


def test_a_default_device_changes_nothing(gpu: torch.device) -> None:
    with gpu:
        _, module, optimizer, loader = make(
            PrivacyEngine(secure_mode=True),
            module=model().to(gpu),
            dataset=rows(gpu),
            norm=QuantileClipping(1.0, count_noise=3.0),
        )
        for x, y in loader:
            step(module, optimizer, x, y)
    assert all(bool(p.isfinite().all()) for p in module.parameters())


def test_a_step_leaves_no_memory_behind(gpu: torch.device) -> None:
    _, module, optimizer, loader = make(
        module=nn.Linear(1000, 1000).to(gpu),
        dataset=TensorDataset(torch.randn(256, 1000, device=gpu)),
        batch=64,
        sampling="fixed",
    )
    held = []
    for _ in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated())
    assert np.ptp(held) == 0


def test_a_simulated_federation_trains_where_its_model_is(device: torch.device) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 200)
    features = (rng.standard_normal((200, 5)) + 3 * labels[:, None]).astype(np.float32)

    def trained(network: nn.Module) -> tuple[list[Tensor], float]:
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.fill_(0.1)
        train = LocalSGD(lr=0.1, momentum=0.5, proximal=0.1)
        clients = iid(labels, 10, rng=np.random.default_rng(2))
        federation = Federation(
            network, features, labels, clients=clients, train=train, strategy=FedMedian()
        )
        history = federation.fit(2, evaluate=Accuracy(features, labels))
        return [p.detach().cpu() for p in network.parameters()], history.scores[-1]

    there = moved(nn.Linear(5, 2), device)
    found, score = trained(there)
    assert {p.device.type for p in there.parameters()} == {device.type}
    expected, same = trained(nn.Linear(5, 2))
    assert score == pytest.approx(same, abs=0.02)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_one_process_of_nccl_trains_as_one_without_a_group(
    gpu: torch.device, tmp_path: Path
) -> None:
    if not dist.is_nccl_available():
        pytest.skip("this torch has no NCCL")

    def trained(wrap: Callable[[nn.Module], nn.Module]) -> list[Tensor]:
        _, module, optimizer, loader = make(
            PrivacyEngine(coins=SeededCoins(4), secure_mode=True),
            module=wrap(model().to(gpu)),
            dataset=rows(gpu),
            noise=1e-6,
        )
        for x, y in loader:
            step(module, optimizer, x, y)
        return [p.detach() for p in module.parameters()]

    alone = trained(lambda module: module)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        grouped = trained(lambda module: DistributedDataParallel(module, device_ids=[0]))
    finally:
        dist.destroy_process_group()
    for one, other in zip(alone, grouped, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
