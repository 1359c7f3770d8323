"""Views: attributes that are asked together, as one question about their combinations."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from hearsay.plans.kinds import Binned, Categorical, Domain, Grid
from ldp import InvalidInput

MOST_COMBINATIONS = 1 << 12
"""The most combinations of values that one view may have: estimates of all of them, with the
covariances of their errors, are to be had of so many."""

MOST_TOGETHER = 1 << 16
"""The most combinations of all views together: a server must not choose how long parsing takes."""


@dataclass(frozen=True)
class View:
    """Attributes that are asked as one question, and how many values each of them has.

    The question's category of the categories v1, v2, ... is (v1 k2 + v2) k3 + v3 ...: the
    combinations are in the order of `itertools.product`.
    """

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The question's name: the attributes' names with "+" between them."""
        return "+".join(self.attributes)

    @property
    def combinations(self) -> int:
        """The number of combinations of values."""
        return math.prod(self.sizes)

    def category(self, categories: Sequence[int]) -> int:
        """Return the category of a combination, given the category of each attribute."""
        found = 0
        for size, category in zip(self.sizes, categories, strict=True):
            found = found * size + category
        return found


def view(names: Sequence[str], domains: Mapping[str, Domain], memos: frozenset[str]) -> View:
    """Return the view of some attributes of a survey, whose domains are given by name.

    `memos` are the memoised attributes. Raises `InvalidInput` for fewer than two attributes, one
    that the survey lacks or that is there twice, one without values, with maps or with a memo, and
    for too many combinations.
    """
    if len(names) < 2:
        raise InvalidInput(f"a view is of two attributes at least, got {list(names)}")
    (name, times), *_ = Counter(names).most_common(1)
    if times > 1:
        raise InvalidInput(f"a view has each attribute once, got {name!r} {times} times")
    sizes = []
    for name in names:
        if name not in domains:
            raise InvalidInput(f"{name!r} is no attribute; expected {', '.join(domains)}")
        domain = domains[name]
        if not domain.joins:
            raise InvalidInput(
                f"{name!r} has neither a list of values nor bins: a view is of attributes that have"
            )
        if domain.maps:
            raise InvalidInput(f"{name!r} has maps, and a view has none: leave one of them out")
        if name in memos:
            raise InvalidInput(f"{name!r} has a memo, and a view has none: leave one of them out")
        sizes.append(len(domain.labels))
    if math.prod(sizes) > MOST_COMBINATIONS:
        counted = " x ".join(f"{name} ({k})" for name, k in zip(names, sizes, strict=True))
        raise InvalidInput(
            f"a view has at most {MOST_COMBINATIONS} combinations of values, got "
            f"{counted} = {math.prod(sizes)}"
        )
    return View(tuple(names), tuple(sizes))


def combined(domains: Sequence[Domain]) -> Categorical | Grid:
    """Return the domain of the combinations of several domains' values.

    Two numbers in bins are a `Grid`. Otherwise bins are values, all protected alike.
    A combination is protected as well as the best protected value in it: it may be revealed only if
    each of its values may be, and has the smallest scale of its values' classes. A value is then
    protected in every combination as its own domain declares, or better.
    """
    bins = [domain for domain in domains if isinstance(domain, Binned)]
    if len(domains) == 2 and len(bins) == 2:
        return Grid(*bins)
    parts = [d if isinstance(d, Categorical) else Categorical(tuple(d.labels)) for d in domains]
    labels = tuple(map(combination, product(*(part.values for part in parts))))
    if all(part.sensitive for part in parts):
        ordinary = [set(part.ordinary) for part in parts]
        each = product(*(part.values for part in parts))
        sensitive = tuple(
            label
            for label, values in zip(labels, each, strict=True)
            if not all(v in may for v, may in zip(values, ordinary, strict=True))
        )
        return Categorical(labels, sensitive=sensitive)
    scales = list(map(min, product(*map(_scales, parts))))
    classes = tuple(
        (tuple(label for label, own in zip(labels, scales, strict=True) if own == scale), scale)
        for scale in sorted(set(scales))
        if scale < 1
    )
    return Categorical(labels, classes=classes)


def _scales(domain: Categorical) -> list[float]:
    of = {value: scale for values, scale in domain.classes for value in values}
    return [of.get(value, 1.0) for value in domain.values]


def combination(values: Sequence[str]) -> str:
    """Return the values as one text, quoted as in CSV: other values make another text."""
    return ", ".join(
        '"' + value.replace('"', '""') + '"' if "," in value or '"' in value else value
        for value in values
    )
