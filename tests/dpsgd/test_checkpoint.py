"""Checkpoints: what goes on, and what must never be drawn again."""

import copy
import io
import itertools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from private import backward, data, make, model, train
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dpsgd import AdamBC, AutomaticClipping, PrivacyEngine, QuantileClipping
from dpsgd.clipping.schedules import Exponential
from dpsgd.training.checkpoint import read, write
from forked import bytes_of_a_forked_child
from ldp import InvalidInput


def test_a_checkpoint_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    engine, module, optimizer, loader = make()
    train(module, optimizer, loader)
    saved = {"engine": engine.state_dict(), "module": module.state_dict()}
    saved["optimizer"] = optimizer.state_dict()
    torch.save(saved, tmp_path / "checkpoint")
    loaded = torch.load(tmp_path / "checkpoint")
    again, other, stepper, batches = make(noise=9.0)
    other.load_state_dict(loaded["module"])
    stepper.load_state_dict(loaded["optimizer"])
    again.load_state_dict(loaded["engine"])
    assert again.noise_multiplier == 1.0
    for each in ((module, optimizer, loader), (other, stepper, batches)):
        train(*each)
    assert again.get_epsilon(1e-5) == engine.get_epsilon(1e-5)


class Scaled(nn.Module):
    """A layer without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


@pytest.mark.filterwarnings("ignore:no rule for:UserWarning")
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))],
    ids=["copied", "pickled"],
)
@pytest.mark.parametrize(
    "make_module",
    [model, lambda: nn.Linear(4, 2), lambda: nn.Sequential(Scaled(), nn.Linear(4, 2))],
    ids=["layers", "one layer", "no rule"],
)
def test_a_copy_is_an_ordinary_module(
    make_module: Callable[[], nn.Module], copied: Callable[[Any], Any]
) -> None:
    engine, module, optimizer, loader = make(module=make_module())
    train(module, optimizer, loader)
    x, y = data().tensors
    spent, other = engine.accountant.history, copied(copied(module))
    backward(other, iter([(x, y)]))  # no batch of the loader's, so the module would refuse it
    plain = make_module()
    plain.load_state_dict(module.state_dict())
    backward(plain, iter([(x, y)]))
    for ours, theirs in zip(other.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    assert engine.accountant.history == spent
    again, *others = make(module=other, noise=2.0)
    train(*others)
    train(module, optimizer, loader)
    assert again.get_epsilon(1e-5) < engine.get_epsilon(1e-5)


def test_a_saved_module_holds_nothing_of_the_run() -> None:
    class Watched(pickle.Unpickler):
        def find_class(self, package: str, name: str) -> Any:
            found.add(package)
            return super().find_class(package, name)

    _, module, optimizer, loader = make()
    train(module, optimizer, loader)
    found: set[str] = set()
    Watched(io.BytesIO(pickle.dumps(module))).load()
    assert {name for name in found if not name.startswith("torch")} <= {
        "builtins",
        "collections",
        "dpsgd.gradients.batch_dims",
    }


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, pickle.dumps, partial(torch.save, f=io.BytesIO())]
)
@pytest.mark.parametrize("part", ["engine", "loader"])
def test_a_run_is_not_copied(part: str, copied: Callable[[Any], Any]) -> None:
    # A copy would hand out batches to a module that clips nothing and adds no noise.
    engine, module, optimizer, loader = make(PrivacyEngine())
    backward(module, iter(loader))  # sums without noise are there
    with pytest.raises(InvalidInput, match="cannot be copied or pickled"):
        copied({"engine": engine, "loader": loader}[part])
    optimizer.step()
    assert engine.accountant.history[0].steps == 1


@pytest.mark.slow
def test_workers_that_are_spawned_load_batches() -> None:
    plain = DataLoader(data(), batch_size=8, num_workers=1, multiprocessing_context="spawn")
    engine, module, optimizer, loader = make(loader=plain)
    train(module, optimizer, loader)
    assert engine.accountant.history[0].steps == len(loader)


def test_a_forked_child_makes_no_step() -> None:
    def step() -> bytes:
        try:
            train(module, optimizer, loader, 1)
        except InvalidInput as error:
            return str(error).encode()
        return b"a step that the parent's account lacks"

    _, module, optimizer, loader = make()
    train(module, optimizer, loader, 1)
    assert b"call make_private in the process that trains" in bytes_of_a_forked_child(step)
    train(module, optimizer, loader, 1)


def test_epsilon_is_not_told_in_silence_where_a_copy_was_trained() -> None:
    engine, module, optimizer, loader = make()
    train(module, optimizer, loader)
    with torch.no_grad():
        for x, _ in loader:  # a loop that only looks at a loss
            module(x)
    next(iter(loader))  # and one that ends before the batch is used
    spent = engine.get_epsilon(1e-5)
    train(*copy.deepcopy((module, optimizer)), loader)
    with pytest.warns(UserWarning, match="the last 9 batches: if a copy of it was"):
        assert engine.get_epsilon(1e-5) == spent


@pytest.mark.slow
def test_another_process_loads_a_saved_module(tmp_path: Path) -> None:
    _, module, optimizer, loader = make()
    train(module, optimizer, loader)
    torch.save(module, tmp_path / "module")
    x, _ = data().tensors
    torch.save((x, module.eval()(x)), tmp_path / "predicted")
    code = """
import sys, torch
module = torch.load(sys.argv[1] + "/module", weights_only=False)
x, predicted = torch.load(sys.argv[1] + "/predicted")
assert torch.equal(module(x), predicted)
assert not {"dpsgd.noise.sources", "dpsgd.training.run"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)


def test_a_checkpoint_is_not_made_within_a_step_nor_loaded_after_one() -> None:
    engine, module, optimizer, loader = make()
    train(module, optimizer, loader, 1)
    state = engine.state_dict()
    with pytest.raises(InvalidInput, match="forgotten"):
        engine.load_state_dict(state)
    x, _ = next(iter(loader))
    engine.state_dict()  # a batch of which nothing was used
    module(x).sum().backward()
    with pytest.raises(InvalidInput, match=r"after optimizer\.step"):
        engine.state_dict()
    engine, module, optimizer, loader = make(norm=100.0)
    backward(module, iter(loader))  # clipped to 100, where the state's norm is 1
    with pytest.raises(InvalidInput, match="before the first backward pass"):
        engine.load_state_dict(state)
    assert engine.max_grad_norm == 100.0


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, AdamBC])
def test_a_run_that_was_broken_off_ends_where_one_that_was_not_does(
    optimizer: type[torch.optim.Optimizer],
) -> None:
    def made() -> Any:
        return make(optimizer=optimizer, sampling="fixed", batch=64, noise=1e-9)

    engine, module, stepper, loader = made()
    for _ in range(4):
        train(module, stepper, loader)
    first, half, half_stepper, half_loader = made()
    for _ in range(2):
        train(half, half_stepper, half_loader)
    saved = copy.deepcopy((half.state_dict(), half_stepper.state_dict(), first.state_dict()))
    second, other, other_stepper, other_loader = made()
    other.load_state_dict(saved[0])
    other_stepper.load_state_dict(saved[1])
    second.load_state_dict(saved[2])
    for _ in range(2):
        train(other, other_stepper, other_loader)
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    assert second.get_epsilon(1e-5) == engine.get_epsilon(1e-5)


def resumed(state: dict[str, Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Go on from a state with the system's coins: the batches and the noise of an epoch."""
    torch.manual_seed(0)
    module = torch.nn.Linear(1, 50, bias=False)
    engine, module, optimizer, loader = make(
        PrivacyEngine(), module=module, dataset=TensorDataset(torch.arange(40.0)[:, None]), batch=20
    )
    engine.load_state_dict(state)
    batches = []
    for (x,) in loader:
        optimizer.zero_grad()
        (0 * module(x)).sum().backward()
        optimizer.step()
        batches.append(x)
    return batches, module.weight.grad


def test_neither_noise_nor_batches_are_repeated_after_a_resume() -> None:
    engine, module, optimizer, loader = make(dataset=data(40), batch=20)
    train(module, optimizer, loader)
    state = engine.state_dict()
    (batches, noise), (others, other_noise) = resumed(state), resumed(state)
    assert not (noise == other_noise).any()
    assert [b.tolist() for b in batches] != [b.tolist() for b in others]


def test_a_state_holds_no_generator_and_is_json() -> None:
    engine, module, optimizer, loader = make()
    train(module, optimizer, loader, 2)
    state = engine.state_dict()
    assert json.loads(json.dumps(state)) == state
    assert set(state) == {"version", "accountant", "steps", "noise_multiplier", "clipping"}


def test_a_schedule_goes_on_at_its_step() -> None:
    noise, norm = Exponential(2.0, 0.9), Exponential(1.0, 0.5)
    engine, module, optimizer, loader = make(noise=noise, norm=norm)
    train(module, optimizer, loader, 3)
    again, other, stepper, batches = make(noise=noise, norm=norm)
    again.load_state_dict(engine.state_dict())
    assert again.noise_multiplier == noise(3)
    train(other, stepper, batches, 1)
    assert again.max_grad_norm == norm(3)
    history = [e.noise_multiplier for e in again.accountant.history]
    assert history == [noise(i) for i in range(4)]


def test_a_norm_that_was_adapted_goes_on() -> None:
    policy = QuantileClipping(1.0, count_noise=3.0)
    engine, module, optimizer, loader = make(norm=policy)
    train(module, optimizer, loader, 3)
    again, *_ = make(norm=policy)
    again.load_state_dict(engine.state_dict())
    assert again.max_grad_norm == engine.max_grad_norm != 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": AutomaticClipping()}, "clipping is 'FlatClipping', this run's 'AutomaticClip"),
        ({"norm": Exponential(1.0, 0.5)}, "this run's 'schedule'"),
        ({"noise": Exponential(1.0, 0.5)}, "give make_private what it was given"),
        ({"sampling": "fixed"}, "the state's relation is 'add_remove'"),
    ],
    ids=["policy", "norm by schedule", "noise by schedule", "sampling"],
)
def test_a_state_of_another_kind_of_run_changes_nothing(
    options: dict[str, Any], message: str
) -> None:
    engine, module, optimizer, loader = make()
    train(module, optimizer, loader, 2)
    other, *_ = make(**options)
    before = other.state_dict()
    with pytest.raises(InvalidInput, match=message):
        other.load_state_dict(engine.state_dict())
    assert other.state_dict() == before


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"steps": -1},
        {"steps": None},
        {"noise_multiplier": float("nan")},
        {"noise_multiplier": -1.0},
        {"clipping": None},
        {"clipping": {"kind": "FlatClipping", "max_grad_norm": 0.0}},
        {"accountant": None},
        {"accountant": {"accountant": "RDP"}},
    ],
    ids=str,
)
def test_a_state_that_is_spoilt_changes_nothing(change: dict[str, Any]) -> None:
    engine, module, optimizer, loader = make()
    train(module, optimizer, loader, 2)
    other, *_ = make()
    before = other.state_dict()
    with pytest.raises(InvalidInput):
        other.load_state_dict({**engine.state_dict(), **change})
    assert other.state_dict() == before


@pytest.mark.parametrize("state", [None, [], 5], ids=str)
def test_what_is_no_state_is_refused(state: Any) -> None:
    engine, *_ = make()
    with pytest.raises(InvalidInput, match="the state must be a dict"):
        engine.load_state_dict(state)
    with pytest.raises(InvalidInput, match="the state must be a dict"):
        engine.accountant.load_state_dict(state)


def test_a_new_engine_is_not_needed_to_count_on() -> None:
    """A second make_private on one engine would forget what the first released."""
    engine, *_ = make()
    with pytest.raises(InvalidInput, match="use another"):
        make(engine)


def scheduled(**options: Any) -> tuple[Any, ...]:
    engine, module, optimizer, loader = make(optimizer=torch.optim.Adam, **options)
    return engine, module, optimizer, loader, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


def test_one_call_saves_a_whole_run_and_one_resumes_it(tmp_path: Path) -> None:
    engine, module, optimizer, loader, scheduler = scheduled()
    train(module, optimizer, loader)
    scheduler.step()
    for epoch in range(2):
        engine.save_checkpoint(tmp_path / "run.pt", scheduler=scheduler, epoch=epoch)
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]
    again, other, stepper, batches, steps = scheduled(noise=9.0)
    assert again.load_checkpoint(str(tmp_path / "run.pt"), scheduler=steps) == {"epoch": 1}
    assert again.state_dict() == engine.state_dict()
    assert steps.state_dict() == scheduler.state_dict()
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in module.state_dict().items())
    moments = [s["exp_avg"] for o in (optimizer, stepper) for s in o.state_dict()["state"].values()]
    assert all(torch.equal(a, b) for a, b in zip(moments[:4], moments[4:], strict=True))
    train(other, stepper, batches, 1)


@pytest.mark.parametrize("value", [print, Path("x"), [{1: object()}]], ids=["code", "path", "deep"])
def test_what_would_need_code_to_be_restored_is_not_saved(tmp_path: Path, value: Any) -> None:
    engine, *_ = make()
    engine.save_checkpoint(tmp_path / "run.pt", epoch=1)
    with pytest.raises(InvalidInput, match=r"run\.pt.*: expected tensors and plain values alone"):
        engine.save_checkpoint(tmp_path / "run.pt", epoch=value)
    assert engine.load_checkpoint(tmp_path / "run.pt") == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


def test_a_file_of_another_run_changes_nothing(tmp_path: Path) -> None:
    engine, module, optimizer, loader = make()
    file = tmp_path / "run.pt"
    train(module, optimizer, loader, 1)
    head = torch.nn.Linear(3, 3)
    engine.save_checkpoint(file, head=head)
    spoilt, alien = tmp_path / "spoilt.pt", tmp_path / "alien.pt"
    text, words = tmp_path / "text.pt", tmp_path / "words.pt"
    spoilt.write_bytes(file.read_bytes()[:-100])
    text.write_text("epsilon = 3\n")
    words.write_text("hello world\n")
    write(alien, {"engine": engine.state_dict()})
    attempts: list[tuple[Any, Path, str]] = [
        *(({}, path, "in a file that is whole") for path in (spoilt, text, words)),
        ({}, alien, "is not a file of save_checkpoint"),
        ({"module": torch.nn.Linear(4, 2)}, file, "for Linear"),
        ({"norm": AutomaticClipping()}, file, "this run's 'AutomaticClipping'"),
        ({"optimizer": torch.optim.Adam}, file, "its optimizer is SGD, this run's Adam"),
        ({"head": torch.nn.Linear(5, 3)}, file, "size mismatch for weight"),
    ]
    for options, path, message in attempts:
        other_head = options.pop("head", head)
        other, loaded, *_ = make(**options)
        before = copy.deepcopy((other.state_dict(), loaded.state_dict()))
        with pytest.raises(InvalidInput, match=message):
            other.load_checkpoint(path, head=other_head)
        assert other.state_dict() == before[0]
        assert all(torch.equal(v, before[1][k]) for k, v in loaded.state_dict().items())
    other.load_checkpoint(file, head=head)
    assert other.state_dict() == engine.state_dict()
    with pytest.raises(InvalidInput, match="of head, module, optimizer; expected module, optim"):
        make()[0].load_checkpoint(file)


def test_every_bit_that_is_flipped_in_a_file_is_found(tmp_path: Path) -> None:
    engine, *_ = run = make()
    train(*run[1:], 1)
    file, spoilt = tmp_path / "run.pt", tmp_path / "spoilt.pt"
    engine.save_checkpoint(file, epoch=1)
    whole, chance = file.read_bytes(), random.Random(7)
    bits = range(8 * len(whole))
    for bit in [*chance.sample(bits, 120), *bits[-640::8]]:
        flipped = bytearray(whole)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        spoilt.write_bytes(flipped)
        with pytest.raises(InvalidInput, match=r"spoilt\.pt: expected .* in a file that is whole"):
            read(spoilt)
    for cut in (0, 1, len(whole) // 2, *range(len(whole) - 75, len(whole))):
        spoilt.write_bytes(whole[:cut])
        with pytest.raises(InvalidInput, match="in a file that is whole"):
            read(spoilt)
    for more in (b"\0", whole):
        spoilt.write_bytes(whole + more)
        with pytest.raises(InvalidInput, match="in a file that is whole"):
            read(spoilt)
    assert make()[0].load_checkpoint(file) == {"epoch": 1}


def test_a_file_without_a_digest_is_refused_with_the_way_out(tmp_path: Path) -> None:
    torch.save({"engine": {}, "parts": {}, "values": {}}, tmp_path / "old.pt")
    with pytest.raises(InvalidInput, match=r"has no SHA-256 at its end: .* save it anew"):
        read(tmp_path / "old.pt")


def test_a_file_with_its_digest_is_read_by_torch_as_well(tmp_path: Path) -> None:
    write(tmp_path / "state", {"weights": torch.arange(3)})
    assert torch.equal(torch.load(tmp_path / "state")["weights"], torch.arange(3))


def test_a_process_killed_while_it_saves_leaves_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    for delay in (0.0, 0.003, 0.01, 0.02):
        file.unlink(missing_ok=True)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            child = os.fork()
        if child == 0:
            try:
                for number in itertools.count():
                    write(file, {"number": number, "values": np.full(300_000, number).tobytes()})
            finally:
                os._exit(1)
        while not file.exists():
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        state = read(file)
        assert state["values"] == np.full(300_000, state["number"]).tobytes()
