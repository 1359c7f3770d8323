"""Names that answers give, and items of which some count."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import TypeGuard, TypeVar

import numpy as np

from hearsay.plans.texts import check_differ, normal
from ldp import Coins, InvalidInput, Mechanism

_Item = TypeVar("_Item")

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


def check_names(what: str, names: Sequence[str], least: int) -> None:
    """Raise `InvalidInput` unless there are `least` names or more, all different, none empty."""
    if len(names) < least:
        number = ("one", "two")[least - 1]
        raise InvalidInput(f"{what} must be at least {number}, got {list(names)}")
    if "" in names:
        raise InvalidInput(f"{what} must not be empty strings")
    check_differ(what, names)


def is_number(answer: object) -> TypeGuard[Real | Decimal]:
    """Whether an answer is a number: neither a boolean, nor a time between two others, which numpy
    counts as one."""
    # Not whatever has __float__: a numpy string has it too, and repeats itself in its error.
    return isinstance(answer, Real | Decimal) and not isinstance(answer, bool | np.timedelta64)


def find(places: Mapping[str, int], answer: object) -> int | None:
    """Return the place of a name, however it is composed, or of a number that spells one; None for
    anything else."""
    text = normal(answer) if isinstance(answer, str) else _spelled(answer)
    return None if text is None else places.get(text)


def _spelled(answer: object) -> str | None:
    """Return a number as a value spells it, such as "3" or "-0.25"; None for anything else, and for
    a number that JavaScript would write in another way."""
    if isinstance(answer, np.floating):
        answer = float(str(answer))  # the shortest digits of a float32, too
    if not is_number(answer):
        return None
    try:
        number = float(answer)
    except (ArithmeticError, ValueError):
        return None
    if not abs(number) <= 1 << 63:  # a nan is not either
        return None
    whole = int(answer)  # type: ignore[arg-type]
    if whole == answer:
        return str(whole) if abs(whole) < 1 << 63 else None
    return np.format_float_positional(number, trim="-") if abs(number) >= 1e-6 else None


def listed(names: Sequence[str]) -> str:
    """Return names in words; of many the first."""
    return ", ".join(names if len(names) <= 8 else (*names[:7], "..."))


def check_at_most(at_most: int, names: int, what: str) -> None:
    """Raise `InvalidInput` unless an answer may have so many of the names."""
    if not 0 <= at_most <= names:
        raise InvalidInput(
            f"at_most must lie in 1..{names}, the number of {what}, or be left out for all of "
            f"them, got {at_most}"
        )


def check_items(mechanism: Mechanism, items: int, most: int) -> None:
    """Raise `InvalidInput` unless the mechanism is for sets of so many items."""
    from ldp import SetSelection
    from ldp.mechanisms import SetMechanism

    if not isinstance(mechanism, SetMechanism) or mechanism.items != items:
        raise InvalidInput(f"{mechanism.name} does not fit {items} items")
    if isinstance(mechanism, SetSelection) and mechanism.most != most:
        raise InvalidInput(
            f"{mechanism.name} does not fit sets of at most {most} items, but of {mechanism.most}"
        )


def some(items: tuple[_Item, ...], most: int, coins: Coins) -> tuple[_Item, ...]:
    """Return the items, or `most` of them drawn uniformly, in their order."""
    if len(items) <= most:
        return items
    return tuple(items[place] for place in coins.distinct(len(items), most).tolist())
