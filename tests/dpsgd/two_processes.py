"""One of two processes that train together: run as a script, it saves what it saw.

python two_processes.py RANK FOLDER DEVICE

Both are on the same device: gloo adds up tensors of a GPU that two processes share, NCCL does not.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dpsgd import PrivacyEngine, QuantileClipping
from dpsgd.clipping.schedules import Linear
from ldp import InvalidInput

RECORDS, BATCH = 60, 6
"""Of all data, and of one process's part of a batch."""
DEVICE = torch.device(sys.argv[3] if __name__ == "__main__" else "cpu")


def inputs() -> torch.Tensor:
    return torch.randn(RECORDS, 5, generator=torch.Generator().manual_seed(1))


def model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))


class Buffered(nn.Linear):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_buffer("scale", torch.ones(()))


def made(
    module: nn.Module, dataset: TensorDataset, **options: Any
) -> tuple[PrivacyEngine, nn.Module, torch.optim.Optimizer, Any]:
    parallel = DistributedDataParallel(module.to(DEVICE))
    engine = PrivacyEngine(secure_mode=options.pop("secure_mode", False))
    options = {"noise_multiplier": 3.0, "max_grad_norm": 0.5} | options
    batch = options.pop("batch_size", BATCH)
    parallel, optimizer, loader = engine.make_private(
        module=parallel,
        optimizer=torch.optim.SGD(parallel.parameters(), lr=0.1),
        data_loader=DataLoader(dataset, batch_size=batch, sampler=options.pop("sampler", None)),
        **options,
    )
    return engine, parallel, optimizer, loader


def gradient(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in module.parameters()]).cpu()


def noise_alone(rank: int) -> dict[str, Any]:
    """Gradients of zero, so that all that is released is noise."""
    module = nn.Linear(100, 200, bias=False)
    dataset = TensorDataset(torch.zeros(RECORDS, 100, device=DEVICE))
    _, module, optimizer, loader = made(module, dataset)
    (x,) = next(iter(loader))
    module(x).sum().backward()
    optimizer.step()
    return {"gradient": gradient(module)}


def training(rank: int) -> dict[str, Any]:
    """A training with hardly any noise, in physical batches of 2, and what it drew."""
    torch.manual_seed(rank)  # of no importance: DistributedDataParallel starts all alike
    dataset = TensorDataset(inputs().to(DEVICE), torch.arange(RECORDS))
    engine, module, optimizer, loader = made(
        model(),
        dataset,
        noise_multiplier=1e-9,
        max_physical_batch_size=2,
        sampler=DistributedSampler(dataset),
    )
    steps: list[dict[str, Any]] = []
    drawn: list[int] = []
    before = [p.detach().cpu().clone() for p in module.parameters()]
    for x, number in loader:
        drawn += number[: engine._run._part.size].tolist()  # not what stands for an empty part
        optimizer.zero_grad()
        (module(x) ** 2).sum(1).mean().backward()
        optimizer.step()
        if next(module.parameters()).grad is not None:
            steps.append({"drawn": drawn, "before": before, "gradient": gradient(module)})
            drawn, before = [], [p.detach().cpu().clone() for p in module.parameters()]
    return {"steps": steps, "epsilon": engine.get_epsilon(1e-5), "history": engine.state_dict()}


def sampling(rank: int) -> dict[str, Any]:
    """The records of many batches."""
    dataset = TensorDataset(inputs().to(DEVICE), torch.arange(RECORDS))
    engine, *_, loader = made(model(), dataset)
    batches = (number for _ in range(200) for _, number in loader)
    return {"drawn": [number[: engine._run._part.size].tolist() for number in batches]}


def adaptive(rank: int) -> dict[str, Any]:
    dataset = TensorDataset(inputs().to(DEVICE))
    engine, module, optimizer, loader = made(
        model(),
        dataset,
        noise_multiplier=Linear(0.5, 0.8, 4),
        max_grad_norm=QuantileClipping(0.3, count_noise=0.9),
    )
    norms = []
    for (x,) in loader:
        (module(x) ** 2).sum(1).mean().backward()
        optimizer.step()
        norms.append(engine.max_grad_norm)
    return {"norms": norms, "weights": [p.detach().cpu() for p in module.parameters()]}


def calibrated(rank: int) -> dict[str, Any]:
    parallel = DistributedDataParallel(model().to(DEVICE))
    engine = PrivacyEngine()
    parallel, optimizer, loader = engine.make_private_with_epsilon(
        module=parallel,
        optimizer=torch.optim.SGD(parallel.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(inputs().to(DEVICE)), batch_size=BATCH),
        target_epsilon=2.0,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
    )
    for _ in range(2):
        for (x,) in loader:
            (parallel(x) ** 2).sum(1).mean().backward()
            optimizer.step()
    return {"epsilon": engine.get_epsilon(1e-5)}


def refusals(rank: int) -> dict[str, str]:
    """What each is told where they do not agree, or could wait for each other in vain."""
    from torch.distributed.fsdp import fully_shard  # two seconds to load, for this alone

    dataset = TensorDataset(inputs().to(DEVICE))
    found = {}

    def attempt(name: str, step: bool = False, **options: Any) -> None:
        try:
            _, module, optimizer, loader = made(model(), dataset, **options)
            if step:
                (x,) = next(iter(loader))
                (module(x) ** 2).sum(1).mean().backward()
                optimizer.step()
            found[name] = "passed"
        except InvalidInput as error:
            found[name] = str(error)

    attempt("noise", step=True, noise_multiplier=1.0 + rank)
    attempt("norm", step=True, max_grad_norm=1.0 + rank)
    attempt("batch", batch_size=BATCH + rank)
    attempt("secure", secure_mode=bool(rank))
    attempt("fixed", sampling="fixed")
    wrapped = {
        "apart": model().to(DEVICE),
        "unused": DistributedDataParallel(model().to(DEVICE), find_unused_parameters=True),
        "inside": nn.Sequential(DistributedDataParallel(model().to(DEVICE))),
        "buffers": DistributedDataParallel(Buffered(1, 1).to(DEVICE)),
        "sharded": fully_shard(model().to(DEVICE)),
    }
    for name, module in wrapped.items():
        try:
            PrivacyEngine().make_private(
                module=module,
                optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
                data_loader=DataLoader(dataset, batch_size=BATCH),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )
        except InvalidInput as error:
            found[name] = str(error)
    return found


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    seen = {
        "noise": noise_alone(rank),
        "training": training(rank),
        "sampling": sampling(rank),
        "adaptive": adaptive(rank),
        "calibrated": calibrated(rank),
        "refusals": refusals(rank),
    }
    torch.save(seen, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
