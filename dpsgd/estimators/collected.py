"""Collected rows as training data: what their reports say of every answer a record may have had.

A record's true features are not known, so the model is evaluated at every combination of answers,
and a combination counts by its probability and by how likely it makes the record's reports. How
probable each combination is, is learned beside the model, by the same clipped and noisy steps. The
loss is -log Pr[reports], of features and label together: its minimum is the truth, where the
channels tell the combinations apart and the model can be right.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpsgd.estimators.features import Feature
from dpsgd.reports.rows import Rows
from ldp import InvalidInput
from ldp.mechanisms.numbers.mean import MeanMechanism

Floats = NDArray[np.float64]

POINTS = 9
"""The points, evenly over its range, that stand for the values of a number."""

MOST_COMBINATIONS = 1 << 10
"""The most combinations of answers: a batch has a row of the model's inputs for each of them."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The combinations of answers in the model's columns, shape (m, d), and for each row the
    logarithm of how likely its reports are under each, shape (n, m)."""

    inputs: Floats
    evidence: Floats


def is_number(rows: Rows, attribute: str) -> bool:
    """Whether an attribute is a number rather than one of some values."""
    return all(isinstance(m, MeanMechanism) for m in rows.reports(attribute).mechanisms)


def candidates(rows: Rows, features: Sequence[Feature]) -> Candidates:
    """Return every combination of answers to the features.

    Raises `InvalidInput` for more than 1,024 combinations; a number has 9 points.
    """
    points, evidence = [], []
    for feature in features:
        if is_number(rows, feature.name):
            where = np.linspace(-1, 1, POINTS)
            points.append(where[:, np.newaxis])
            evidence.append(point_likelihoods(rows, feature.name, where))
        else:
            evidence.append(rows.reports(feature.name).likelihoods())
            points.append(np.eye(evidence[-1].shape[1]))
    count = math.prod(map(len, points))
    if count > MOST_COMBINATIONS:
        raise InvalidInput(
            f"{', '.join(f'{f.name} ({len(p)})' for f, p in zip(features, points, strict=True))}: "
            f"{count:,} combinations of answers, of {POINTS} for each number; at most "
            f"{MOST_COMBINATIONS:,} are learned from, which is three numbers: take fewer features"
        )
    inputs = np.array([np.concatenate(each) for each in product(*points)])
    likely = np.zeros((rows.n, 1))
    with np.errstate(divide="ignore"):
        for each in evidence:
            likely = (likely[:, :, np.newaxis] + np.log(each)[:, np.newaxis]).reshape(rows.n, -1)
    return Candidates(inputs, likely)


def point_likelihoods(rows: Rows, attribute: str, points: Floats) -> Floats:
    """Return Pr[report | number] for every row and point in [-1, 1], shape (n, points).

    The largest of each row is scaled to one; a row without a report has ones. A number between
    two of the mechanism's grid points is reported as one of them, at random without bias.
    """
    found = np.ones((rows.n, len(points)))
    for cohort in rows.reports(attribute).cohorts:
        mechanism = cohort.mechanism
        assert isinstance(mechanism, MeanMechanism)
        places = (points + 1) / 2 * mechanism.steps
        below = np.minimum(places.astype(int), mechanism.steps - 1)
        share = (places - below)[:, np.newaxis]
        matrix = mechanism.matrix()
        channel = (1 - share) * matrix[below] + share * matrix[below + 1]
        found[cohort.rows] = channel[:, cohort.codes].T
    found /= found.max(axis=1, keepdims=True)
    return found


class Joint(nn.Module):
    """The joint distribution of features and label: a model, and how probable its inputs are."""

    def __init__(self, model: nn.Module, inputs: Floats) -> None:
        super().__init__()
        self.model = model
        self.shares = nn.Linear(1, len(inputs), bias=False)
        nn.init.zeros_(self.shares.weight)
        self.register_buffer("inputs", torch.as_tensor(inputs, dtype=torch.float32))

    def forward(self, evidence: Tensor) -> Tensor:
        """Return log Pr[combination, label, reports of the features], shape (n, m, k)."""
        n, m = evidence.shape
        assert isinstance(self.inputs, Tensor)
        labels = self.model(self.inputs.expand(n, m, -1)).log_softmax(-1)
        shares = self.shares(evidence.new_ones(n, 1)).log_softmax(-1)
        joint: Tensor = (evidence + shares).unsqueeze(-1) + labels
        return joint


def surprise(joint: Tensor, label: Tensor) -> Tensor:
    """Return -log Pr[all reports of a row], shape (n,).

    joint: from `Joint`, shape (n, m, k); label: log Pr[the label's report | label], shape (n, k).
    """
    return -torch.logsumexp(joint + label.unsqueeze(1), (1, 2))
