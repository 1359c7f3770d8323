"""Detection of the batch dimension in each layer's input.

A size may equal the batch's by chance, and a layer that took one for the other would clip the
wrong thing. So a few samples of the first batch run before it, without gradients: the dimension
that is another then is the batch. Later calls are held to that.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dpsgd.gradients.mixing import check_unmixed, mapped, tensors
from ldp import InvalidInput

Site = tuple[int, Any]
"""The number of a layer's call in a forward, and which input of which layer it is, in which use."""


class BatchDims:
    """Track the batch's size, and its dimension in layers' inputs, while a module runs.

    `batch_dim` is the batch's dimension in the module's own inputs, or of some of them: others may
    have it first. `drawn` is the size of the batch that the loader handed out, by which a flat
    input is told from one that has the batch. `by_sample(layer)` is called for layers that turn
    out to be `uncovered` as samples of the first batch run; then those run anew.
    """

    drawn: int | None = None

    def __init__(self, module: nn.Module, batch_dim: int) -> None:
        self.by_sample: Callable[[nn.Module], None] = lambda _: None
        self.uncovered: nn.Module | None = None  # the layer of the last error for such a use
        self._batch_dim = batch_dim
        self._batch: int | None = None
        self._last: int | None = None  # of the last forward, for what runs again in backward
        self._rank = 0  # of the first input that has the batch
        self._idle = False  # in a copy of the module, or a file: it is an ordinary one there
        self.probing = False
        # The largest batch size tried, up to 2, in evaluation (False) and in training (True).
        self._tried = {False: 0, True: 0}
        self._few = 2  # samples that are tried, as many as no input has values in a dimension
        self._probed: dict[Site, tuple[torch.Size, int]] = {}
        self._dims: dict[Site, int | None] = {}
        self._values: dict[Any, Tensor] = {}  # of the sites, in one trial
        self._order: Sequence[int] = ()  # the numbers of the samples in it
        self._training = False
        self._calls: Counter[nn.Module] = Counter()
        module.register_forward_pre_hook(self._enter, with_kwargs=True, prepend=True)
        module.register_forward_hook(self._leave, always_call=True)

    def __getstate__(self) -> dict[str, Any]:
        return {"_idle": True}

    @property
    def _now(self) -> int | None:
        """The size of the batch that runs; in a backward pass checkpointed parts run again."""
        return self._last if in_backward() else self._batch

    def begin(self, layer: nn.Module, name: str) -> tuple[int, int]:
        """Count a call of a layer; return the size of the batch, and the number of the call."""
        batch = self._now
        if batch is None:
            raise InvalidInput(
                f"{name} was called outside of the private module's forward: call the module that "
                "make_private returned, or disable gradients"
            )
        self._calls[layer] += 1
        return batch, self._calls[layer]

    def draw(self, batch: int) -> None:
        """Note the size of the batch that the loader hands out; no forward runs any longer."""
        self.drawn, self._batch = batch, None

    def apart(self, value: Tensor, dim: int) -> Tensor:
        """Return a value with the batch in `dim`: as samples are tried, told apart by numbers.

        Else nothing would show where rows are mixed that do not depend on the samples.
        """
        if not self.probing:
            return value
        numbers = value.new_tensor(self._order).view(-1, *[1] * (value.ndim - dim - 1))
        return value + numbers * (1 + value.abs()) / 8

    def find(self, site: Site, value: Tensor, name: str) -> int | None:
        """Return the batch's dimension in an input; None if it has none.

        Raises `InvalidInput` where that is unclear, or not as in the first batch.
        """
        batch, shape = self._now, value.shape
        site = site[0], (site[1], self._training)  # evaluation may take other branches
        if self.probing:
            self._probed[site] = shape, self._few
            self._values[site] = value.detach().clone()
            return next((i for i, size in enumerate(shape) if size == batch), None)
        if site in self._dims:
            dim = self._dims[site]
        elif site in self._probed:
            dim = self._dims[site] = self._compared(shape, *self._probed[site], name)
        else:
            dim = self._as_other_calls(site, name)
        if dim is not None and (dim >= len(shape) or shape[dim] != batch):
            raise InvalidInput(
                f"{name}: its input has shape {tuple(shape)}, expected {batch} samples in "
                f"dimension {dim}, as in the first batch"
            )
        return dim

    def _compared(self, shape: torch.Size, probed: torch.Size, few: int, name: str) -> int | None:
        sizes = self._now, few
        if len(shape) == len(probed) and self._now != few:
            pairs = list(enumerate(zip(shape, probed, strict=True)))
            different = [i for i, (size, other) in pairs if size != other]
            if not different:
                return None
            if len(different) == 1 and pairs[different[0]][1] == sizes:
                return different[0]
        raise InvalidInput(
            f"{name}: its input has shape {tuple(shape)} for {sizes[0]} samples and "
            f"{tuple(probed)} for {sizes[1]}; keep the batch a dimension of its own"
        )

    def _as_other_calls(self, site: Site, name: str) -> int | None:
        seen = {dim for (_, place), dim in self._dims.items() if place == site[1]}
        if len(seen) != 1:
            raise InvalidInput(
                f"{name}: was not called like this for the first batch, so it is unknown which "
                "dimension of its input is the batch"
            )
        return seen.pop()

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._idle or not torch.is_grad_enabled():
            return
        if self._batch is not None:
            raise InvalidInput("the private module was called inside its own forward")
        dim, inputs = self._batch_dim, tensors((args, kwargs))
        ranked = [t for t in inputs if t.ndim > dim]
        if not ranked:
            raise InvalidInput(f"the module got no tensor with a batch in dimension {dim}")
        self._rank = ranked[0].ndim
        batch: int = ranked[0].shape[dim]
        if self._rank == 1 and any(len(t) == self.drawn for t in ranked):
            batch = self.drawn or batch  # the first are flat ids, of which others hold offsets
        items = kwargs.get("num_items_in_batch")  # by which a loss of transformers is divided
        if items is not None and int(items) != batch and kwargs.get("labels") is not None:
            raise InvalidInput(
                f"num_items_in_batch is {int(items)} for {batch} samples, and a loss divided by it "
                "couples them: leave Trainer's gradient_accumulation_steps at 1, and give it a "
                "compute_loss_func that averages within each sample"
            )
        self._training = module.training
        if min(batch, 2) > self._tried[module.training]:
            self._probe(module, args, kwargs, batch)
        self._batch = self._last = batch
        self._calls.clear()

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._batch = None

    def _place(self, value: Tensor, batch: int | None) -> int | None:
        """Return the dimension of an input of the module that has the batch; None if none has."""
        # Of a square, such as the mask of as many sequences as they are long, the likelier one.
        dims = (self._batch_dim, 0) if value.ndim == self._rank else (0, self._batch_dim)
        return next((d for d in dims if value.ndim > d and value.shape[d] == batch), None)

    def _probe(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], batch: int
    ) -> None:
        inputs = tensors((args, kwargs))
        sizes = {batch, *(size for value in inputs for size in value.shape)}
        few = self._few = next(n for n in itertools.count(2) if n not in sizes)
        first, bags = inputs[0], _bags(module, inputs, batch)

        def run(order: Sequence[int]) -> dict[Any, Tensor]:
            def pick(value: Tensor) -> Tensor:
                picked = [i % batch for i in order]
                if bags is not None and value.ndim == 1:
                    bounds = [*bags[1].tolist(), len(bags[0])]
                    if value is bags[1]:
                        lengths = [bounds[i + 1] - bounds[i] for i in picked]
                        return value.new_tensor([0, *lengths[:-1]]).cumsum(0)
                    if len(value) == bounds[-1]:
                        return torch.cat([value[bounds[i] : bounds[i + 1]] for i in picked])
                dim = self._place(value, batch)
                if dim is None:
                    return value
                if batch == 1:  # the other sample is this one backwards, and half as large
                    other = value.flip([d for d in range(value.ndim) if d != dim])
                    other = other / 2 if value.is_floating_point() else other
                    value, picked = torch.cat([value, other], dim), list(order)
                return value.index_select(dim, torch.tensor(picked, device=value.device))

            probed = dict(self._probed)
            self._batch, self._order, self._values = len(order), order, {}
            self._calls.clear()
            with torch.no_grad(), torch.random.fork_rng([first.device] if first.is_cuda else []):
                output = module.forward(*mapped(pick, args), **mapped(pick, kwargs))
            if len(order) != few:
                self._probed = probed
            values, self._values = self._values, {}
            return dict(enumerate(tensors(output))) | values

        self.probing, self.uncovered = True, None
        done = False
        try:
            while not done:
                try:
                    check_unmixed(module, run, few)
                    done = True
                except InvalidInput:
                    if self.uncovered is None:
                        raise
                    self.by_sample(self.uncovered)
                    self.uncovered = None
            self._tried[module.training] = min(batch, 2)
        except (RuntimeError, IndexError) as error:
            raise InvalidInput(
                f"the module fails with {few} samples in place of {batch}, so its batches cannot "
                "be told from the rest; is one of its inputs as large as a batch by chance?"
            ) from error
        finally:
            self._batch, self.probing = None, False
            if not done:
                self._probed.clear()


def in_backward() -> bool:
    """Tell whether a backward pass is under way."""
    return torch._C._current_graph_task_id() != -1


def _bags(module: nn.Module, values: Sequence[Tensor], batch: int) -> tuple[Tensor, Tensor] | None:
    """Return flat ids and the offsets of each sample's, as an EmbeddingBag takes them, or None."""
    flat = [v for v in values if v.ndim == 1 and not v.is_floating_point()]
    if len(flat) < 2 or not any(isinstance(layer, nn.EmbeddingBag) for layer in module.modules()):
        return None
    ids, offsets = flat[:2]
    ends = torch.cat([offsets, offsets.new_tensor([len(ids)])])
    fits = len(offsets) == batch and not ends[0] and bool((ends.diff() >= 0).all())
    return (ids, offsets) if fits else None
