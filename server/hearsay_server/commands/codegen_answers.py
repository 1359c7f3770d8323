"""How `hearsay codegen` types the answers of each kind, in both languages, and describes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hearsay.plans.kinds import Binned, ByKind, Numeric, Ratings, SetOf, Strings


@dataclass(frozen=True)
class Typed:
    """The type of an answer in `python` and in `typescript`, and what is `allowed`, in words.

    "{}" stands for the name of a type of its own: that of one of the kind's labels.
    """

    python: str
    typescript: str
    allowed: Callable[[Any], str]

    @property
    def names_labels(self) -> bool:
        """Whether the labels are a type of their own."""
        return "{}" in self.python


def _value(domain: object) -> str:
    return "one of its values"


def _number(domain: Numeric | Binned) -> str:
    return f"{domain}, others move to the nearer end" if domain.clamp else f"{domain}"


def _items(domain: SetOf) -> str:
    return f"at most {domain.most} of its values{_more(domain)}; [] is none"


def _ratings(domain: Ratings) -> str:
    scale = f"{domain.low:g} to {domain.high:g}"
    return f"at most {domain.most} keys{_more(domain)}, each rated {scale}"


def _more(domain: SetOf | Ratings) -> str:
    return f", of more {domain.most} count" if domain.clamp else ""


def _word(domain: Strings) -> str:
    return f"a word of 1 to {domain.longest} letters of {domain.alphabet}"


TYPED = ByKind(
    category=Typed("{}", "{}", _value),
    number=Typed("float", "number", _number),
    bins=Typed("float", "number", _number),
    set=Typed("Collection[{}]", "readonly {}[]", _items),
    ratings=Typed("Mapping[{}, float]", "Readonly<Partial<Record<{}, number>>>", _ratings),
    words=Typed("str", "string", _word),
    grid=Typed("{}", "{}", _value),
)
