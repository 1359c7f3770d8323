"""Corrected losses: unbiased by enumeration, consistent by what they converge to."""

import itertools

import numpy as np
import pytest
import torch
from reported import CATEGORICAL, every_code
from torch.nn.functional import cross_entropy

from dpsgd.reports.channels import Reports, indicators, likelihoods
from dpsgd.reports.losses import backward_cross_entropy, forward_cross_entropy
from ldp import KRR, HadamardResponse, InvalidInput, SubsetSelection, UnaryEncoding
from ldp.testing import SeededCoins


def tensor(array: object) -> torch.Tensor:
    return torch.as_tensor(np.asarray(array), dtype=torch.float64)


@pytest.mark.parametrize("name", CATEGORICAL)
def test_the_backward_loss_is_unbiased_for_every_label(name: str) -> None:
    mechanism = CATEGORICAL[name]
    channel, codes = tensor(np.array(mechanism.channel().rows, dtype=float)), every_code(mechanism)
    logits = torch.randn(mechanism.k, dtype=torch.float64, generator=torch.Generator())
    losses = backward_cross_entropy(
        logits.expand(len(codes), -1), tensor(indicators(mechanism, codes))
    )
    truth = cross_entropy(
        logits.expand(mechanism.k, -1), torch.arange(mechanism.k), reduction="none"
    )
    assert torch.allclose(channel @ losses, truth, atol=1e-9)


@pytest.mark.parametrize("name", CATEGORICAL)
def test_the_forward_loss_is_least_for_the_truth(name: str) -> None:
    """Its expected gradient vanishes at the truth, and its curvature is positive there."""
    mechanism = CATEGORICAL[name]
    k, codes = mechanism.k, every_code(mechanism)
    truth = tensor(np.arange(1, k + 1) / (k * (k + 1) / 2))
    chances = truth @ tensor(np.array(mechanism.channel().rows, dtype=float))
    rows = tensor(likelihoods(mechanism, codes))

    def risk(free: torch.Tensor) -> torch.Tensor:
        logits = torch.cat([free, free.new_zeros(1)])  # softmax forgets a shift
        return chances @ forward_cross_entropy(logits.expand(len(codes), -1), rows)

    at = (truth.log() - truth[-1].log())[:-1]
    gradient = torch.autograd.functional.jacobian(risk, at)
    assert gradient.abs().max() < 1e-9
    curvature = torch.autograd.functional.hessian(risk, at)
    assert torch.linalg.eigvalsh(curvature).min() > 1e-5


def test_without_noise_both_are_cross_entropy() -> None:
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 2, 1, 0])
    rows = torch.eye(3)[labels]
    expected = cross_entropy(logits, labels, reduction="none")
    assert torch.allclose(forward_cross_entropy(logits, rows), expected)
    assert torch.allclose(backward_cross_entropy(logits, rows), expected)


def test_a_row_without_a_report_has_no_loss_and_no_gradient() -> None:
    reports = Reports.by_level([KRR(3, 1.0)], np.array([-1]), np.array([0], dtype=np.uint8))
    logits = torch.randn(1, 3, dtype=torch.float64, generator=torch.Generator())
    logits.requires_grad_()
    for loss in (
        forward_cross_entropy(logits, tensor(reports.likelihoods())),
        backward_cross_entropy(logits, tensor(reports.indicators())),
    ):
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert loss.abs().item() < 1e-12
        assert gradient.abs().max() < 1e-12


def test_a_randomised_feature_leaves_the_backward_loss_unbiased() -> None:
    feature, label = SubsetSelection(4, 1.0), HadamardResponse(3, 0.7)
    logits = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator())
    rows = [every_code(m) for m in (feature, label)]
    pairs = list(itertools.product(range(len(rows[0])), range(len(rows[1]))))
    i, j = np.array(pairs).T
    losses = backward_cross_entropy(
        logits.expand(len(pairs), -1, -1),
        tensor(indicators(label, rows[1][j])),
        tensor(indicators(feature, rows[0][i])),
    ).reshape(len(rows[0]), len(rows[1]))
    channels = [tensor(np.array(m.channel().rows, dtype=float)) for m in (feature, label)]
    mean = channels[0] @ losses @ channels[1].T
    assert torch.allclose(mean, -torch.log_softmax(logits, 1), atol=1e-9)


def test_a_randomised_feature_is_summed_over_in_the_forward_loss() -> None:
    feature, label = UnaryEncoding(3, 1.0), KRR(2, 1.0)
    prior = tensor([0.5, 0.3, 0.2])
    model = tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])  # Pr[label | feature]
    codes = every_code(feature)
    channels = [tensor(np.array(m.channel().rows, dtype=float)) for m in (feature, label)]
    joint = torch.einsum("m,ma,mk,kb->ab", prior, channels[0], model, channels[1])
    candidates = prior * tensor(likelihoods(feature, codes))
    found = forward_cross_entropy(
        model.log().expand(len(codes), -1, -1),
        tensor(likelihoods(label, np.zeros(len(codes), dtype=np.uint8))),
        candidates,
    )
    scales = channels[0].max(0).values * channels[1].max(0).values[0]  # what rows were divided by
    assert torch.allclose(found, -(joint[:, 0] / scales).log())


@pytest.mark.slow
def test_the_corrected_losses_recover_the_truth_and_the_plain_one_does_not() -> None:
    """Logistic regression on k-RR labels of two levels."""
    coins, source = SeededCoins(7), np.random.default_rng(7)
    n, weights = 60_000, np.array([[1.5, -1.0, -0.5], [-0.5, 1.0, -0.5]])
    features = source.normal(size=(n, 2))
    scores = features @ weights
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    labels = (source.random((n, 1)) > chances.cumsum(axis=1)).sum(axis=1)
    levels = source.integers(2, size=n)
    mechanisms = [KRR(3, 1.0), KRR(3, 2.0)]
    codes = np.empty(n, dtype=np.uint8)
    for level, mechanism in enumerate(mechanisms):
        codes[levels == level] = mechanism.randomize_many(labels[levels == level], coins)
    reports = Reports.by_level(mechanisms, levels, codes)

    def fitted(loss, rows) -> np.ndarray:
        model = torch.nn.Linear(2, 3, bias=False).double()
        torch.nn.init.zeros_(model.weight)
        optimizer = torch.optim.LBFGS(
            model.parameters(), max_iter=100, line_search_fn="strong_wolfe"
        )
        inputs = tensor(features)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            value = loss(model(inputs), rows).mean()
            value.backward()
            return value

        optimizer.step(closure)
        found = model.weight.detach().numpy().T
        return found - found.mean(axis=1, keepdims=True)

    for loss, rows in (
        (forward_cross_entropy, tensor(reports.likelihoods())),
        (backward_cross_entropy, tensor(reports.indicators())),
    ):
        assert fitted(loss, rows) == pytest.approx(weights, abs=0.12)
    plain = fitted(cross_entropy, torch.as_tensor(codes.astype(np.int64)))
    assert np.abs(plain - weights).max() > 0.5


def test_shapes_that_do_not_fit_are_refused() -> None:
    for loss in (forward_cross_entropy, backward_cross_entropy):
        with pytest.raises(InvalidInput, match=r"got \(2, 3\), None and \(2, 4\)"):
            loss(torch.zeros(2, 3), torch.ones(2, 4))
        with pytest.raises(InvalidInput, match="logits are"):
            loss(torch.zeros(2, 3), torch.ones(2, 3), torch.ones(2, 5))
