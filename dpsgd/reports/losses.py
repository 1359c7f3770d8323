"""Cross-entropies that learn through a channel: forward by likelihood, backward without bias.

Both take a row of k numbers per report in the place of a label (`dpsgd.reports.channels.Reports`),
so that levels may mix and codes need not be categories. They return one loss per row, as per-sample
clipping needs them apart.
"""

import torch
from torch import Tensor

from ldp import InvalidInput


def forward_cross_entropy(
    logits: Tensor, likelihoods: Tensor, candidates: Tensor | None = None
) -> Tensor:
    """Return -log Pr[report] under the model, shape (n,), up to constants of the reports.

    logits: (n, k), log Pr[category | features] unnormalised; likelihoods: (n, k), Pr[report |
    category] up to row factors. It is maximum likelihood, bounded below: its minimum over all
    models is the truth, for any channel that tells the categories apart.

    Where a categorical feature was randomised too, logits are (n, m, k), for each of its m values,
    and `candidates` (n, m) hold Pr[value] Pr[its report | value]: the feature is summed over.
    Raises `InvalidInput` where shapes do not fit. A row of zeros has an infinite loss.
    Source: Patrini et al., "Making deep neural networks robust to label noise: a loss
    correction approach", CVPR 2017, theorem 2, which has it for a square channel.
    """
    _check(logits, likelihoods, candidates)
    if candidates is None:
        return torch.logsumexp(logits, 1) - torch.logsumexp(logits + likelihoods.log(), 1)
    each = torch.logsumexp(logits + likelihoods.log().unsqueeze(1), 2)
    each = each - torch.logsumexp(logits, 2)
    return -torch.logsumexp(each + candidates.log(), 1)


def backward_cross_entropy(
    logits: Tensor, indicators: Tensor, candidates: Tensor | None = None
) -> Tensor:
    """Return unbiased estimates of the cross-entropy with the truth, one per row, shape (n,).

    logits: (n, k); indicators: (n, k), one on average for the true category, else zero.
    Unbiased for every model, and so are its gradients, until they are clipped. A sample's loss is
    unbounded below: prefer the forward one for a model that can overfit.

    Where a categorical feature was randomised too, logits are (n, m, k) and `candidates` (n, m)
    its indicators: the product of the two is unbiased, since their coins are independent.
    Raises `InvalidInput` where shapes do not fit.
    Source: Patrini et al., CVPR 2017, theorem 1.
    """
    _check(logits, indicators, candidates)
    losses = -torch.log_softmax(logits, -1)
    if candidates is None:
        return (indicators * losses).sum(1)
    return torch.einsum("nm,nk,nmk->n", candidates, indicators, losses)


def _check(logits: Tensor, rows: Tensor, candidates: Tensor | None) -> None:
    wanted = logits.shape if candidates is None else (*candidates.shape, logits.shape[-1])
    if logits.shape != wanted or rows.shape != (logits.shape[0], logits.shape[-1]):
        raise InvalidInput(
            "logits are (n, k), or (n, m, k) with candidates (n, m), and rows (n, k); got "
            f"{tuple(logits.shape)}, {None if candidates is None else tuple(candidates.shape)} "
            f"and {tuple(rows.shape)}"
        )
