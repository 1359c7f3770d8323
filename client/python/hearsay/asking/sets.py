"""An analyst's questions about sets and ratings: sizes of sets, pairs of items, mean ratings."""

from abc import abstractmethod
from typing import Unpack

from hearsay.asking.answer import Answer
from hearsay.asking.selection import LONG, Options, Selection, fields, warned
from hearsay.checking.calls import AnalystCalls
from hearsay.v1 import analyst_pb2


class Sets:
    """The questions of `Analyst` that are about answers of several items each."""

    _calls: AnalystCalls

    @abstractmethod
    def estimate(self, survey: str, attribute: str, **options: Unpack[Options]) -> Answer:
        """Return an answer: one row per value, or the row "mean" of a number."""

    @abstractmethod
    def _estimated(self, survey: str, attribute: str, options: Options) -> Answer:
        """Return the answer to an `EstimateRequest`."""

    def set_sizes(self, survey: str, attribute: str, **options: Unpack[Options]) -> Answer:
        """Return how many items people's sets have: a row per size, and a table "mean" of the mean
        size, which is the first and only one where reports tell nothing else (`set_bits`).

        Columns and options are those of `estimate`, except `consistency`, `forged`, `recover`,
        `top` and `values`. Where a survey counts `at_most` items of larger sets (`clamp`) the last
        size is that of sets of so many items or more, and a warning tells their share.
        """
        options["sizes"] = True
        return warned(self._estimated(survey, attribute, options))

    def ratings(self, survey: str, attribute: str, **options: Unpack[Options]) -> Answer:
        """Return mean ratings, and who rated: a row per key.

        Columns: estimate, the mean rating of those who rated the key, on the survey's scale, with
        standard_error, low and high (Fieller's interval); share, the share of people who rated it,
        with share_standard_error, share_low and share_high. Where the share is within 3 standard
        errors of none, nothing is known of the mean: it is nan, and a warning says so. Options are
        those of `estimate`, except `consistency`, `forged` and `recover`.
        """
        return self.estimate(survey, attribute, **options)

    def pairs(
        self,
        survey: str,
        attribute: str,
        *,
        top: int = 100,
        confidence: float = 0.95,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return the share of people who have both of two items of a set, the largest first.

        There are `top` rows, indexed by first and second. Columns: estimate, standard_error, low,
        high, and independent, the product of the two items' shares. The server reads all the
        reports: that takes time. Raises `InvalidInput` where a report has one member alone.
        """
        request = analyst_pb2.PairsRequest(
            survey=survey,
            attribute=attribute,
            top=top,
            confidence=confidence,
            **fields(selection, Selection),
        )
        return warned(self._calls.ask("Answers/Pairs", request, LONG))
