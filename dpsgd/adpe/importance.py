"""The importance of each input feature, by SHAP values."""

import warnings

import torch
from torch import Tensor, nn

from ldp import InvalidInput
from ldp.errors import needs

_AT_ONCE = 50


def shap_importance(module: nn.Module, inputs: Tensor, labels: Tensor, baselines: Tensor) -> Tensor:
    """Return alpha_j = K |c_j| / sum |c|, shape (K,), c_j the mean SHAP value of feature j.

    The SHAP values are those of the output of each record's own label, by DeepLIFT over the
    `baselines`, of which each has the shape of a record of `inputs`, shape (n, ...) with K
    features. The mean of alpha is 1.

    Guarantee: none. The values are computed from the records as they are, without noise, and so is
    all that follows from them: only `ADPE` as published takes them. Raises `MissingExtra` without
    captum, of the extra `shap`, and `InvalidInput` without two baselines of the records' shape, and
    where no feature matters. Cost: a forward and a backward pass for each pair of a record and a
    baseline.
    Source: Lundberg and Lee, "A unified approach to interpreting model predictions", NeurIPS 2017.
    """
    with needs("shap_importance", "shap"):
        from captum.attr import DeepLiftShap
    if len(baselines) < 2 or baselines.shape[1:] != inputs.shape[1:]:
        raise InvalidInput(
            f"expected two baselines or more of the shape {tuple(inputs.shape[1:])} of a record, "
            f"got {tuple(baselines.shape)}"
        )
    explainer = DeepLiftShap(module)
    total = torch.zeros_like(inputs[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of hooks that are gone afterwards
        for part, own in zip(
            torch.split(inputs, _AT_ONCE), torch.split(labels, _AT_ONCE), strict=True
        ):
            total += explainer.attribute(part, baselines, target=own).detach().sum(0)
    found = total.flatten().abs()
    if not 0 < float(found.sum()) < torch.inf:
        raise InvalidInput("no feature has a finite SHAP value other than 0: train the module")
    return found * (len(found) / found.sum())
