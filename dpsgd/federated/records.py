"""Whether the records of a simulation fit its model: checked once, before there is a step."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ldp import InvalidInput

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of a batch's outputs and labels, the mean loss."""


def check_records(model: nn.Module, features: Tensor, labels: Tensor, loss: Loss) -> None:
    """Raise `InvalidInput` where a model cannot be trained on the records.

    Features must be such as the model takes: floating-point ones float32. With `cross_entropy`
    labels must be int64, one for each row of the model's outputs, from 0 to its classes - 1. Other
    losses check their labels themselves.
    Cost: the model's outputs of one record.
    """
    outputs = outputs_of_one(model, features)
    if loss is not cross_entropy:
        return
    if outputs.ndim < 2 or labels.shape[1:] != outputs.shape[2:]:
        raise InvalidInput(
            "the model must have a score for each class and label of a record, got outputs of "
            f"shape {tuple(outputs.shape[1:])} and labels of shape {tuple(labels.shape[1:])}"
        )
    if labels.dtype != torch.int64:
        raise InvalidInput(f"labels must be int64, got {_name(labels.dtype)}")
    classes, least, most = outputs.shape[1], int(labels.min()), int(labels.max())
    if least < 0 or most >= classes:
        raise InvalidInput(
            f"the model has {classes} classes: labels must be 0 to {classes - 1}, got "
            f"{least if least < 0 else most}"
        )


def outputs_of_one(model: nn.Module, features: Tensor) -> Tensor:
    """Return a model's outputs of the first record; raise `InvalidInput` where it takes none."""
    if features.is_floating_point() and features.dtype != torch.float32:
        raise InvalidInput(
            f"features must be float32, as the model's parameters are, got {_name(features.dtype)}"
        )
    was_training = model.training
    try:
        with torch.no_grad():
            outputs: Tensor = model.eval()(features[:1])
    except (RuntimeError, ValueError, IndexError) as error:
        raise InvalidInput(
            f"the model does not take records of {_name(features.dtype)} features of shape "
            f"{tuple(features.shape[1:])}: {str(error).splitlines()[0]}"
        ) from None
    finally:
        model.train(was_training)
    return outputs


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
