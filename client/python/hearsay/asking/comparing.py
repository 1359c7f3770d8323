"""An analyst's questions about differences: between parts of the reports, or between groups."""

from typing import Unpack

from hearsay.asking.answer import Answer
from hearsay.asking.selection import LONG, Selection, fields, warned
from hearsay.asking.together import Together, groups_request
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput


class Comparisons(Together):
    """The question of `Analyst` by how much people differ; groups are of attributes together."""

    _timeout: float

    def compare(
        self,
        survey: str,
        attribute: str,
        first: Selection | None = None,
        second: Selection | None = None,
        *,
        by: str = "",
        reference: str = "",
        confidence: float = 0.95,
        simultaneous: bool = False,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return by how much the second part of the reports differs from the first, with a test;
        or with `by` the groups that have the values of this attribute.

        With `by` there is a row for each pair of groups and value, or for each other group than
        `reference`; the index has first_group, second_group and value, the intervals are by the
        delta method, and the reports are the stored records with both attributes (`within`).

        Otherwise each part is a `Selection`, such as `{"periods": ["2026-11-20"]}` or
        `{"levels": ["open"]}`; they must have no reports in common. There is a row per value,
        or the row "mean" of a number. Columns: first and second (the parts' estimates, stratified
        by level), difference (second - first), standard_error, low and high (of the difference);
        p_value of the two-sided test that there is none, of this value by itself;
        adjusted_p_value, corrected by Holm's method for testing all values: call those different
        where it is at most 0.05, and the probability that any of them is not is at most 5%.
        The answer holds the survey, attribute, statistic, confidence, the parts' numbers of
        reports, warning, and repeats: the same people may be in both parts, and errors allow for
        the worst of that.
        """
        if by:
            if first is not None or second is not None:
                raise InvalidInput("give two parts of the reports or by, not both")
            question = groups_request(
                survey,
                attribute,
                by,
                reference=reference,
                confidence=confidence,
                simultaneous=simultaneous,
                view="differences",
                selection=selection,
            )
            return warned(self._calls.ask("Answers/CompareGroups", question, LONG))
        if first is None or second is None or reference or selection:
            raise InvalidInput(
                "compare two parts of the reports, each with a selection of its own, or give by"
            )
        request = compare_request(
            survey,
            attribute,
            first,
            second,
            confidence=confidence,
            simultaneous=simultaneous,
        )
        return warned(self._calls.ask("Answers/Compare", request, self._timeout))


def compare_request(
    survey: str,
    attribute: str,
    first: Selection,
    second: Selection,
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
) -> analyst_pb2.CompareRequest:
    """Return the request of `Analyst.compare`; raise `TypeError` for an unknown key of a part."""
    return analyst_pb2.CompareRequest(
        survey=survey,
        attribute=attribute,
        first=fields(first, Selection)["selection"],
        second=fields(second, Selection)["selection"],
        confidence=confidence,
        simultaneous=simultaneous,
    )
