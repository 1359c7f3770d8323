"""Full precision for norms and clipped sums."""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch

_AS_IT_IS = nullcontext()


def exact(device: str) -> AbstractContextManager[object]:
    """Return a context without gradients and autocast, and with full-precision products.

    TensorFloat-32 and its like keep 10 bits or fewer of each factor: norms come out too
    small, and gradients clipped by them too long. Convolutions of a GPU take it by default.
    """
    graded, cast = torch.is_grad_enabled(), torch.is_autocast_enabled(device)
    backends: Any = torch.backends
    settings = [backends.cudnn.conv] if device == "cuda" else []
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set for one backend, and so must be set for each
        precision = "highest"
        settings += [backends.cuda.matmul, backends.mkldnn.matmul]
    if not (graded or cast or settings) and precision == "highest":
        return _AS_IT_IS
    restored = ExitStack()
    if graded:
        restored.enter_context(torch.no_grad())
    if cast:
        restored.enter_context(torch.autocast(device, enabled=False))
    if precision != "highest":
        restored.callback(torch.set_float32_matmul_precision, precision)
        torch.set_float32_matmul_precision("highest")
    for setting in settings:
        before = setting.fp32_precision
        if before != "ieee":
            restored.callback(setattr, setting, "fp32_precision", before)
            setting.fp32_precision = "ieee"
    return restored
