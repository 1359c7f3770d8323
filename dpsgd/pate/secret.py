"""A figure that depends on private data, held so that it is not published by accident."""

import warnings
from typing import Any, NoReturn, final

from ldp import InvalidInput

_WHY = (
    "an epsilon that depends on the teachers' votes is private data itself: publish "
    "get_epsilon(delta), which does not"
)


def refuse_to_leave(what: str) -> NoReturn:
    """Raise `InvalidInput` for what may not leave the process."""
    raise InvalidInput(f"{what} is neither printed nor saved: {_WHY}")


@final
class PrivateEpsilon:
    """An epsilon that nobody may see but who may see the teachers' votes.

    It is not printed, formatted, saved, compared or computed with: each raises `InvalidInput`
    or `TypeError`, and `repr` has no digits. `reveal` returns it, with a warning.
    """

    __slots__ = ("__value",)

    def __init__(self, value: float) -> None:
        self.__value = value

    def reveal(self) -> float:
        """Return the epsilon, for the eyes of who may see the votes; nothing covers more."""
        warnings.warn(_WHY, stacklevel=2)
        return self.__value

    def __repr__(self) -> str:
        return "<an epsilon that is private itself: reveal() shows it to who may see the votes>"

    def __format__(self, spec: str) -> str:
        refuse_to_leave("a data-dependent epsilon")

    def __float__(self) -> float:
        refuse_to_leave("a data-dependent epsilon")

    def __reduce__(self) -> Any:
        refuse_to_leave("a data-dependent epsilon")

    __getstate__ = __reduce__
