"""Several processes that train one model: torch's DistributedDataParallel.

Each process draws from its own share of the records. Their clipped sums are added up, with noise
from the first process alone, so that it is there exactly once; a gradient is set only after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ldp import InvalidInput


@dataclass(frozen=True)
class Ranks:
    """The processes that train together; this one alone where there is no group."""

    group: "dist.ProcessGroup | None" = None
    device: torch.device | None = None

    @staticmethod
    def started() -> int:
        """Return how many processes were started together, whether or not they train so."""
        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    @property
    def size(self) -> int:
        """The number of processes."""
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return 0 if self.group is None else dist.get_rank(self.group)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor, in place, by its sum over all processes."""
        if self.size == 1:
            return
        for dtype in dict.fromkeys(t.dtype for t in tensors):
            alike = [t for t in tensors if t.dtype == dtype]
            flat = torch.cat([t.flatten() for t in alike])
            dist.all_reduce(flat, group=self.group)
            for t, part in zip(alike, torch.split(flat, [t.numel() for t in alike]), strict=True):
                t.copy_(part.view_as(t))

    def total(self, value: float, **same: float) -> float:
        """Return a value's sum over processes; raise `InvalidInput` in each if `same` differs."""
        if self.size == 1:
            return value
        mine = torch.tensor([value, *same.values()], dtype=torch.float64, device=self.device)
        theirs = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(theirs, mine, group=self.group)
        columns = torch.stack(theirs).T.tolist()
        for name, column in zip(same, columns[1:], strict=True):
            if len(set(column)) > 1:
                raise InvalidInput(f"processes must agree on {name}, got {column}")
        return float(sum(columns[0]))


def unwrapped(module: nn.Module) -> tuple[nn.Module, Ranks]:
    """Return the module inside of a DistributedDataParallel, and its processes.

    Raises `InvalidInput` for options under which processes with different numbers of physical
    batches would wait for each other in vain.
    """
    if not dist.is_available() or not isinstance(module, DistributedDataParallel):
        return module, Ranks()
    if module.find_unused_parameters or module.static_graph:
        raise InvalidInput(
            "DistributedDataParallel: leave find_unused_parameters and static_graph off; unused "
            "parameters are no obstacle here"
        )
    if module.broadcast_buffers and any(True for _ in module.module.buffers()):
        raise InvalidInput(
            "DistributedDataParallel: the module has buffers, set broadcast_buffers=False"
        )
    if module.mixed_precision is not None:
        raise InvalidInput("DistributedDataParallel: use torch.autocast, not mixed_precision")
    device = next(module.module.parameters()).device
    return module.module, Ranks(module.process_group, device)
