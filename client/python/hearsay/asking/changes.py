"""An analyst's questions about change over time: between periods, per period, and when."""

from collections.abc import Sequence
from typing import Literal, Unpack

from hearsay.asking.answer import Answer
from hearsay.asking.selection import Selection, fields, warned
from hearsay.checking.calls import AnalystCalls
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput

Kind = Literal["DIFFERENCE", "TREND", "BREAKS"]


class ChangeOptions(Selection, total=False):
    """What a change can be asked with, besides a `Selection`.

    `confidence` is the intervals', for each row by itself, or with `simultaneous` for all rows at
    once (Bonferroni). `sums` asks about sets of values, whose frequencies are summed, and `ranges`
    about ranges (low, high) of a number in bins, in place of the values.
    """

    confidence: float
    simultaneous: bool
    sums: Sequence[Sequence[str]]
    ranges: Sequence[tuple[float, float]]


class Changes:
    """The questions of `Analyst` about what changed over time."""

    _calls: AnalystCalls
    _timeout: float

    def change(
        self, survey: str, attribute: str, first: str, second: str, **options: Unpack[ChangeOptions]
    ) -> Answer:
        """Return by how much the second period differs from the first, with a test.

        There is a row per value, or the row "mean" of a number; of ratings the share of people who
        rated a key. Columns: first and second (the periods' estimates), difference
        (second - first), standard_error, low and high (of the difference); p_value of the two-sided
        test that there is none, of this value by itself; adjusted_p_value, corrected by Holm's
        method for testing all values: call those changed where it is at most 0.05, and the
        probability that any of them is not is at most 5%.

        With several levels (or maps) both estimates have these in the same shares, those of all
        reports of the two periods, so that a change of the mix of levels is no change of an answer;
        the column mix says by how much more the difference would be of the people who answered.

        Errors allow for the same people in both periods. In a survey with panels they are from the
        spread of the panels' differences, whatever people do; else they are the largest that any
        people could make. The answer holds the survey, attribute, statistic, confidence, panels
        (0: the largest errors), reports (by period), kind, warning, and any_p_value: of the test
        that none of the rows changed.
        """
        if options.get("periods"):
            raise InvalidInput("a change is between the two periods that it names, without periods")
        chosen: ChangeOptions = {**options, "periods": [first, second]}
        return self._changed(survey, attribute, "DIFFERENCE", chosen)

    def trend(self, survey: str, attribute: str, **options: Unpack[ChangeOptions]) -> Answer:
        """Return the slopes of straight lines through the estimates of the periods.

        Columns as of `change`, but slope (the change per period of the survey) for difference, and
        first and second are those of the line in the first and the last period. Periods count by
        their precision, and those without reports leave a gap. There must be three with reports.
        """
        return self._changed(survey, attribute, "TREND", options)

    def breaks(self, survey: str, attribute: str, **options: Unpack[ChangeOptions]) -> Answer:
        """Return for each value the period in which it changed most clearly, and by how much.

        Columns as of `change`, but period (the first one after the break), and before and after
        (means over the periods) for first and second. Breaks are looked for in the middle 80% of
        the periods, of which there must be five with reports. The p-values are of the test that
        nothing changed, and allow for the search; the interval is that of a break in this period,
        as if it had been known.
        """
        return self._changed(survey, attribute, "BREAKS", options)

    def _changed(self, survey: str, attribute: str, kind: Kind, options: ChangeOptions) -> Answer:
        request = change_request(survey, attribute, kind, options)
        return warned(self._calls.ask("Answers/Change", request, self._timeout))


def change_request(
    survey: str, attribute: str, kind: Kind, options: ChangeOptions
) -> analyst_pb2.ChangeRequest:
    """Return the request of `Analyst.change`, `.trend` or `.breaks`.

    Raises `TypeError` for an unknown option, and `InvalidInput` for sums that are no lists.
    """
    given = fields(options, ChangeOptions)
    sums = given.pop("sums", ())
    if any(isinstance(values, str) for values in sums):
        raise InvalidInput(f"each sum is a list of values, got {sums!r}")
    return analyst_pb2.ChangeRequest(
        survey=survey,
        attribute=attribute,
        kind=kind,
        sums=[analyst_pb2.ValueSet(values=values) for values in sums],
        ranges=[analyst_pb2.Range(low=low, high=high) for low, high in given.pop("ranges", ())],
        **given,
    )
