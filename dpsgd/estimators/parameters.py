"""What the parameters of an estimator can be, whatever their ranges: checked before a fit."""

import math
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import nn

from dpsgd.accounting.events import shown
from ldp import Coins, InvalidInput

_NUMBERS = ("delta", "max_grad_norm", "learning_rate")
_NUMBERS_OR_NONE = ("epsilon", "noise_multiplier")
_INTEGERS = ("steps",)
_INTEGERS_OR_NONE = ("batch_size", "max_physical_batch_size")
_MOST = 1 << 53
"""The largest integer: floats have all integers up to it."""


def check_parameters(model: Any) -> None:
    """Raise `InvalidInput`, naming the first, for parameters of a kind that they cannot have."""
    for name in (*_NUMBERS, *_NUMBERS_OR_NONE):
        value = getattr(model, name)
        if not (_is_number(value) or (value is None and name in _NUMBERS_OR_NONE)):
            _refuse(name, "a number", value, or_none=name in _NUMBERS_OR_NONE)
    for name in (*_INTEGERS, *_INTEGERS_OR_NONE):
        value = getattr(model, name)
        if not (_is_size(value) or (value is None and name in _INTEGERS_OR_NONE)):
            _refuse(name, "an integer >= 1", value)
    if not 0 <= model.learning_rate < float("inf"):
        _refuse("learning_rate", "finite and >= 0", model.learning_rate)
    if not (_lists(model.hidden) and all(map(_is_size, model.hidden))):
        _refuse("hidden", "the widths of layers, such as (32, 16)", model.hidden)
    if not (isinstance(model.optimizer, str) or callable(model.optimizer)):
        _refuse("optimizer", "adam, sgd or a function", model.optimizer)
    if not (isinstance(model.module, nn.Module | None) or callable(model.module)):
        _refuse("module", "a torch module or a function", model.module, or_none=True)
    if not callable(model.accountant):
        _refuse("accountant", "a function of a relation", model.accountant)
    if not (model.on_progress is None or callable(model.on_progress)):
        _refuse("on_progress", "a function", model.on_progress, or_none=True)
    if not isinstance(model.coins, Coins | None):
        _refuse("coins", "Coins", model.coins, or_none=True)
    if not isinstance(model.standardize, bool | np.bool_):
        _refuse("standardize", "True or False", model.standardize)
    if not (
        model.categories is None
        or (isinstance(model.categories, Mapping) and all(map(_lists, model.categories.values())))
    ):
        _refuse("categories", "a mapping of features to their values", model.categories)
    classes = getattr(model, "classes", None)
    if not (classes is None or _lists(classes)):
        _refuse("classes", "the labels", classes, or_none=True)


def _is_number(value: Any) -> bool:
    try:
        return (
            isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(float(value))
        )
    except OverflowError:
        return False


def _is_size(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 1 <= int(value) <= _MOST


def _lists(values: Any) -> bool:
    """Whether values can be counted and listed, and are no text."""
    return isinstance(values, Collection) and not isinstance(values, str | bytes)


def _refuse(name: str, wanted: str, value: Any, *, or_none: bool = False) -> None:
    also = ", or None" if or_none else ""
    raise InvalidInput(f"{name} must be {wanted}{also}, got {shown(value)}")
