"""Measure what a reader must hold of this project, and write the table of docs/design.md.

`make measure` runs `python -m measuring.table` in the folder `tests`. Each file beside this one is
one measure, and lists what it counted when it is run.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from measuring import additions, files, functions, kinds, options, recording

PAGE = files.ROOT / "docs" / "design.md"
START, END = "<!-- measures -->\n", "<!-- end -->"

NEAR = 0.03
"""By how much a number may differ from the table's where most commits change it."""


@dataclass(frozen=True)
class Row:
    """A row of the table: what is measured, on 28 November 2026 at first, and what is wanted.

    `today` measures it, as a text with numbers; what stands in backticks is a name. What it is
    `held` by: its numbers are "near" the table's, "exact", or at "most" as large.
    """

    what: str
    first: str
    wanted: str
    held: str
    today: Callable[[], str]


def _lines() -> str:
    return f"{files.lines(files.sources()):,}"


def _rooms() -> str:
    rooms = [f"{name} {files.lines(files.python(room)):,}" for name, room in files.PYTHON.items()]
    return ", ".join(rooms)


def _typescript() -> str:
    return "; ".join(f"{files.lines(files.typescript(part)):,}" for part in ("src", "test"))


def _proto() -> str:
    many = files.lines([files.ANALYST])
    return f"{many:,}; {len(files.messages())}; {len(files.responses())}"


def _function() -> str:
    (found,) = functions.longest(1)
    return f"{found.lines} (`{found.name}`)"


def _options() -> str:
    name, count = next(iter(options.of_commands(*options.LARGEST).items()))
    asking = options.of_commands("ask", "query")
    question, most = next(iter(asking.items()))
    return f"{count} (`hearsay {name}`); {most} (`hearsay {question}`)"


_telling = cache(kinds.sites)


def _sites() -> str:
    return f"{len(_telling())}"


def _kind() -> str:
    touched, telling = additions.of_a_new_kind(_telling()), additions.telling_a_kind(_telling())
    return f"{len(touched)}; {len(telling)}"


def _questions() -> str:
    calls = {name: each for name, each in additions.of_calls().items() if name not in _NO_QUESTIONS}
    counts = sorted(len(each) for each in calls.values())
    return f"{len(additions.QUESTION)}; {counts[0]} to {counts[-1]} more"


_NO_QUESTIONS = ("ExportRows", "Watch")


def _record() -> str:
    found = recording.cost()
    return f"{found.calls}; {found.files}; {found.depth}"


def _named() -> str:
    return f"{len(files.named_after_source())} of {len(files.test_files())}"


ROWS: Sequence[Row] = (
    Row("Python source, lines", "94,000", "80,000", "near", _lines),
    Row("of these, by room", "", "", "near", _rooms),
    Row(
        "Python tests, lines",
        "88,000",
        "70,000",
        "near",
        lambda: f"{files.lines(files.tests()):,}",
    ),
    Row("TypeScript, lines: source; tests", "", "", "near", _typescript),
    Row(
        "`analyst.proto`: lines; messages; kinds of response",
        "774; ; 12",
        "400; ; 1",
        "most",
        _proto,
    ),
    Row("longest function, lines", "433", "60", "most", _function),
    Row("most options of a command; of a question", "53", "15", "most", _options),
    Row("places that tell a kind of attribute", "215", "under 30", "most", _sites),
    Row(
        "source files that a new kind touches; that tell a kind, or have a table of all",
        "25 to 39",
        "8",
        "most",
        _kind,
    ),
    Row(
        "source files that a new mechanism touches",
        "12",
        "6",
        "exact",
        lambda: f"{len(additions.MECHANISM)}",
    ),
    Row(
        "source files that a new question touches; with a call of its own",
        "25 to 39",
        "8",
        "most",
        _questions,
    ),
    Row(
        "arguments of `Client(...)`",
        "33",
        "12",
        "exact",
        lambda: f"{options.of_client()}",
    ),
    Row("below `record`: calls; files; depth", "127; 28; 17", "70; 16; 10", "most", _record),
    Row(
        "test files named after a source file",
        "238 of 551",
        "all that have one subject",
        "near",
        _named,
    ),
    Row(
        "words of the README and of docs",
        "157,000",
        "under 90,000",
        "near",
        lambda: f"{files.words(files.pages()):,}",
    ),
)


def table(today: Mapping[str, str]) -> str:
    """Return the table as Markdown, with what each row has today."""
    lines = ["| | at first | today | to reach |", "|---|--:|--:|--:|"]
    lines += [f"| {row.what} | {row.first} | {today[row.what]} | {row.wanted} |" for row in ROWS]
    return "\n".join(lines)


def kept() -> dict[str, str]:
    """Return what docs/design.md says of today, by row."""
    text = PAGE.read_text(encoding="utf-8").partition(START)[2].partition(END)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    return {what: today for what, _, today, _ in cells}


def numbers(text: str) -> list[int]:
    """Return the numbers of a text, without those in names."""
    return [
        int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", re.sub("`.*?`", "", text))
    ]


def holds(row: Row, today: str, written: str) -> bool:
    """Tell whether a measure is as the table has it, as far as the row is held to that."""
    pairs = list(zip(numbers(today), numbers(written), strict=True))
    match row.held:
        case "near":
            return all(abs(now - then) <= NEAR * then for now, then in pairs)
        case "most":
            return all(now <= then for now, then in pairs)
    return today == written


def rewrite() -> None:
    """Measure all, and write the table into docs/design.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, found, rest = text.partition(START)
    _, ended, after = rest.partition(END)
    assert found and ended, f"{PAGE} has no {START} with {END} below"
    made = table({row.what: row.today() for row in ROWS})
    PAGE.write_text(f"{before}{START}{made}\n{END}{after}", encoding="utf-8")
    sys.stdout.write(f"{made}\n")


if __name__ == "__main__":
    rewrite()
