"""Compare what is told with what is expected; raise `InvalidInput` that names the place."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from ldp.errors import InvalidInput


def check_same(place: str, told: Sequence[object], expected: Sequence[object]) -> None:
    """Check that a list is the expected one."""
    if list(told) != list(expected):
        raise InvalidInput(f"{place}: expected {_told(expected)}, got {_told(told)}")


def check_count(place: str, told: Sequence[object], asked: Sequence[object]) -> None:
    """Check that there are as many as were asked for."""
    if len(told) != len(asked):
        raise InvalidInput(f"{place}: expected {len(asked)}, got {len(told)}")


def check_numbers(
    place: str, told: Sequence[tuple[float, ...]], expected: Sequence[tuple[float, ...]]
) -> None:
    """Check the numbers of rows, which another computer may have rounded otherwise."""
    check_count(place, told, expected)
    if told and not np.allclose(told, expected, rtol=1e-12, atol=1e-12 * np.ptp(expected)):
        raise InvalidInput(f"{place}: expected {_told(expected)}, got {_told(told)}")


def check_among(place: str, told: Iterable[object], known: Collection[object]) -> None:
    """Check that all are known."""
    allowed = known if isinstance(known, set | frozenset | dict) else set(known)
    for each in told:
        if each not in allowed:
            raise InvalidInput(f"{place}: the plan, or the question, has no {_told([each])}")


def check_once(place: str, told: Sequence[object]) -> None:
    """Check that none comes twice."""
    if len(set(told)) != len(told):
        raise InvalidInput(f"{place}: one comes twice")


def _told(values: Sequence[object]) -> str:
    """Return the beginning of a list, and how long it is."""
    some = ", ".join(repr(value)[:60] for value in values[:3])
    return f"{some}, ... ({len(values):,})" if len(values) > 3 else some or "none"
