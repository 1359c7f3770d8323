"""What an analyst asks a server, and its answers, which become frames, JSON, CSV and plots."""

from typing import TYPE_CHECKING

from ldp.lazy import lazy

if TYPE_CHECKING:  # the same names, for type checkers
    from hearsay.asking.analyst import Analyst as Analyst
    from hearsay.asking.answer import Answer as Answer
    from hearsay.asking.answer import Cohort as Cohort
    from hearsay.asking.answer import Column as Column
    from hearsay.asking.answer import Level as Level
    from hearsay.asking.answer import Note as Note
    from hearsay.asking.answer import Subject as Subject
    from hearsay.asking.answer import Table as Table
    from hearsay.asking.margins import read_margins as read_margins
    from hearsay.asking.plots import figure as figure
    from hearsay.asking.selection import Options as Options
    from hearsay.asking.selection import Selection as Selection
    from hearsay.asking.selection import Weighting as Weighting

__all__, __dir__, __getattr__ = lazy(
    __name__,
    {
        "hearsay.asking.analyst": "Analyst",
        "hearsay.asking.answer": "Answer Cohort Column Level Note Subject Table",
        "hearsay.asking.margins": "read_margins",
        "hearsay.asking.plots": "figure",
        "hearsay.asking.selection": "Options Selection Weighting",
    },
    extra="analyst",
)
