"""Loops of other libraries: the guide's code runs as it stands, and other loaders are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from opacus_shim.shipped import load_torchvision
from private import data, make
from test_training_guide import FIRST, LOOPS
from torch import nn
from torch.nn import functional as F  # noqa: N812

from dpsgd import PrivacyEngine
from dpsgd.accounting import PoissonSampling
from ldp import InvalidInput

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ACCELERATE, LIGHTNING, TRAINER = LOOPS


@pytest.fixture(autouse=True, scope="module")
def what_the_libraries_import() -> None:
    load_torchvision()  # if it is there at all: a build for GPUs fails beside a torch without


def run(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(compile(FIRST.split("engine =")[0], "ten lines", "exec"), names)
    exec(compile(code, "a loop", "exec"), names)
    return names


def steps(engine: PrivacyEngine, rate: float) -> int:
    (event,) = engine.accountant.history
    assert (event.noise_multiplier, event.sampling) == (1.0, PoissonSampling(rate))
    return event.steps


def test_accelerate_prepares_what_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerate = pytest.importorskip("accelerate")
    names = run(ACCELERATE, tmp_path, monkeypatch)
    assert steps(names["engine"], 0.05) == 20
    assert names["loader"] is names["made"][2]
    with pytest.raises(InvalidInput, match="no batch was drawn"):
        for x, y in accelerate.skip_first_batches(names["loader"], 1):
            F.cross_entropy(names["model"](x), y).backward()
    with pytest.raises(InvalidInput, match="before accelerate prepared it"):
        make(loader=names["accelerator"].prepare(torch.utils.data.DataLoader(data(), 8)))
    twin = nn.Linear(4, 2)
    with pytest.raises(InvalidInput, match="AcceleratedOptimizer is around another optimizer"):
        make(
            module=twin,
            optimizer=lambda p, lr: names["accelerator"].prepare(torch.optim.SGD(p, lr)),
        )
    assert "forward" not in vars(twin)


def test_lightning_trains_privately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightning")
    names = run(LIGHTNING, tmp_path, monkeypatch)
    assert steps(names["classifier"].engine, 0.05) == 40
    assert (tmp_path / "run.pt").exists()
    kind = names["Classifier"]
    monkeypatch.setattr(
        kind, "train_dataloader", lambda self: torch.utils.data.DataLoader(names["dataset"], 100)
    )
    trainer = names["lightning"].Trainer(max_epochs=1, logger=False, enable_checkpointing=False)
    with pytest.raises(InvalidInput, match="no batch was drawn"):
        trainer.fit(kind())


def test_trainer_of_transformers_trains_privately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    names = run(TRAINER, tmp_path, monkeypatch)
    assert steps(names["engine"], 0.25) == 8
    arguments = names["arguments"]
    arguments.gradient_accumulation_steps = 2
    trainer = names["PrivateTrainer"](
        names["model"], arguments, optimizers=(names["optimizer"], None)
    )
    with pytest.raises(InvalidInput, match="gradient_accumulation_steps at 1"):
        trainer.train()


def test_a_language_model_is_trained_by_a_loss_that_averages_within_samples() -> None:
    transformers = pytest.importorskip("transformers")
    rows = [{"input_ids": t, "labels": t.clone()} for t in torch.randint(2, 30, (32, 6))]
    for row in rows:
        row["labels"][2 + int(row["input_ids"][0]) % 4 :] = -100
    config = transformers.GPT2Config(
        vocab_size=30, n_embd=8, n_layer=2, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=1
    )
    model = transformers.GPT2LMHeadModel(config)
    model.gradient_checkpointing_enable()
    engine, model, optimizer, loader = make(
        module=model, loader=torch.utils.data.DataLoader(rows, 8), max_physical_batch_size=4
    )
    for batch in loader:
        labels = batch.pop("labels")[:, 1:]
        losses = F.cross_entropy(model(**batch).logits[:, :-1].mT, labels, reduction="none")
        (losses.sum(1) / (labels >= 0).sum(1)).mean().backward()
        optimizer.step()
    assert steps(engine, 0.25) == 4
    with pytest.raises(InvalidInput, match="num_items_in_batch is 9 for"):
        model(**next(iter(loader)), num_items_in_batch=torch.tensor(9))
