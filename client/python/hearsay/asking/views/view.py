"""A view: a question that can be asked of an attribute, in the command, in Python and on pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from hearsay.asking.answer import Answer
from hearsay.asking.views import notes
from hearsay.asking.views.options import Given, Option

if TYPE_CHECKING:
    from hearsay.asking.analyst import Analyst


@dataclass(frozen=True)
class Question:
    """One call of a method of `Analyst`, which is made as it is written."""

    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, analyst: "Analyst") -> Answer:
        """Return the answer."""
        return cast(Answer, getattr(analyst, self.method)(*self.args, **self.options))

    def python(self, target: str, *, with_token: bool) -> str:
        """Return a program that gives the same table."""
        lines = ["import os\n"] if with_token else []
        lines += ["from hearsay import Analyst\n", "\n"]
        token = ', token=os.environ["HEARSAY_TOKEN"]' if with_token else ""
        lines.append(f"analyst = Analyst({target!r}{token})\n")
        given = [repr(each) for each in self.args]
        given += [f"{name}={value!r}" for name, value in self.options.items()]
        call = f"analyst.{self.method}({', '.join(given)})"
        if len(call) > 80:
            call = f"analyst.{self.method}(\n    " + ",\n    ".join(given) + ",\n)"
        lines.append(f"table = {call}.to_frame()\n")
        return "".join(lines)


def _itself(analyst: "Analyst", survey: str, given: Given, answer: Answer) -> list[Answer]:
    return [answer]


@dataclass(frozen=True)
class View:
    """A question by its name in commands and addresses.

    `kinds` are the kinds of attributes that it is about, none of a question about several;
    `question` makes the call of `Analyst` from what is given; `notes` says what there is to say
    beside the numbers; `pictured` returns the answers that a picture is drawn of, and may ask for
    more. Views that `poll` may be asked again and again: the others make the server read all the
    reports. `subject` is what a command's second argument is called, "" where a view is about a
    whole survey.
    """

    name: str
    title: str
    says: str
    kinds: Sequence[str]
    options: tuple[Option, ...]
    question: Callable[[str, Given], Question]
    notes: Callable[[Answer], list[str]] = notes.nothing
    poll: bool = True
    pictured: Callable[["Analyst", str, Given, Answer], list[Answer]] = _itself
    subject: str = "attribute"


ALL = ("categorical", "numeric", "set", "ratings")
