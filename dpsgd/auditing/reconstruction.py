"""Audit what the update of one record tells, by finding the record from it.

An attacker knows the model, and reads the update that a client with one record sends. Without noise
a dense first layer gives the record away to the last digit. Needs torch.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpsgd.accounting.events import check_integer, check_positive
from ldp import InvalidInput


def invert_dense(weight: Tensor, bias: Tensor) -> Tensor:
    """Return the input of a dense layer, shape (inputs,), from the changes of its parameters.

    `weight` has shape (outputs, inputs) and `bias` (outputs,). The gradient of one record x is
    (d x^T, d), d being that of the outputs, and after many steps on the same record it is the same
    with the sum of the d: so x is exact for any learning rate and number of epochs, and whatever
    the update was multiplied by. Here it is the least squares estimate given d, which averages
    noise out. Of several records it is a mixture.
    Raises `InvalidInput` for other shapes, and where the bias did not change.
    Source: Phong et al., "Privacy-preserving deep learning via additively homomorphic encryption",
    IEEE TIFS 2018; Geiping et al., NeurIPS 2020, proposition 3.1.
    """
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise InvalidInput(
            "a weight of shape (outputs, inputs) and a bias of shape (outputs,) are expected, got "
            f"{tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    square = float(bias.double() @ bias.double())
    if not square > 0:
        raise InvalidInput("the bias did not change: nothing of the input is in the layer's change")
    found: Tensor = (bias.double() @ weight.double() / square).to(weight.dtype)
    return found


def likely_label(bias_gradient: Tensor) -> int:
    """Return the label of one record, from the gradient of the last layer's bias, shape (classes,).

    By cross entropy it is softmax - one-hot: the label alone has a negative entry.
    Source: Zhao, Mopuri and Bilen, "iDLG: Improved deep leakage from gradients", 2020.
    """
    return int(bias_gradient.argmin())


def match_gradient(
    model: nn.Module,
    gradient: Mapping[str, Tensor],
    *,
    shape: tuple[int, ...],
    label: int,
    bounds: tuple[float, float] = (0.0, 1.0),
    steps: int = 300,
    lr: float = 0.1,
    smoothness: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """Return a record of a shape and label whose gradient has the direction of the one given.

    `gradient` has a tensor for each trained parameter, by name; an update of one step of SGD is
    -lr times it, and any positive factor will do. From a seeded random start in `bounds`, Adam's
    `steps` on the signs of its gradient make 1 - cosine least, plus `smoothness` times the mean
    difference of neighbouring pixels of the last two dimensions. It may find another record.
    Raises `InvalidInput` where a parameter has no gradient of its shape, for bounds that are not in
    order, and unless steps >= 1 and lr > 0.
    Cost: two passes through the model for each step.
    Source: Zhu, Liu and Han, "Deep leakage from gradients", NeurIPS 2019; Geiping et al.,
    "Inverting gradients", NeurIPS 2020, equation 4 (cosine, signs, total variation).
    """
    check_integer("steps", steps, 1)
    check_positive("lr", lr)
    if not bounds[0] < bounds[1]:
        raise InvalidInput(f"the lower bound must be below the upper one, got {bounds}")
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, parameter in parameters.items():
        if name not in gradient or gradient[name].shape != parameter.shape:
            raise InvalidInput(f"a gradient of shape {tuple(parameter.shape)} is needed for {name}")
    target = torch.cat([gradient[name].flatten() for name in parameters]).detach()
    coins = torch.Generator().manual_seed(seed)
    low, high = bounds
    guess = (low + (high - low) * torch.rand((1, *shape), generator=coins)).requires_grad_()
    wanted = torch.tensor([label])
    optimizer = torch.optim.Adam([guess], lr=lr)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - step / steps)
        loss = cross_entropy(model(guess), wanted)
        found = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        away = 1 - torch.cosine_similarity(torch.cat([g.flatten() for g in found]), target, dim=0)
        if smoothness:
            away = away + smoothness * sum(guess.diff(dim=d).abs().mean() for d in (-1, -2))
        guess.grad = torch.autograd.grad(away, guess)[0].sign()
        optimizer.step()
        with torch.no_grad():
            guess.clamp_(low, high)
    return guess.detach()[0]


def mean_squared_error(found: Tensor, record: Tensor) -> float:
    """Return the mean over the values of a record of the squared error; raises for other shapes."""
    if found.shape != record.shape:
        raise InvalidInput(
            f"a record of shape {tuple(record.shape)} is expected, got {found.shape}"
        )
    return float((found.double() - record.double()).square().mean())
