"""An analyst's questions about how numbers are distributed: histograms, quantiles, ranges."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from hearsay.asking.answer import Answer
from hearsay.asking.selection import Selection, Weighting, fields, warned
from hearsay.checking.calls import AnalystCalls
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput


class Distributions:
    """The questions of `Analyst` that are about more of a number than its mean."""

    _calls: AnalystCalls
    _timeout: float

    def distribution(
        self,
        survey: str,
        attribute: str,
        *,
        bins: int | None = None,
        edges: Sequence[float] = (),
        step: float | None = None,
        quantiles: Sequence[float] = (0.25, 0.5, 0.75),
        confidence: float = 0.95,
        **selection: Unpack[Weighting],
    ) -> Answer:
        """Return how a number is distributed: the tables "bins", a histogram, and "quantiles".

        The histogram has a row for each of `bins` bins, or between consecutive `edges`, indexed
        by left and right; the quantiles a row for each. Columns as `estimate`. The mechanism must
        tell more than the mean: square_wave is made for it.

        Where answers are whole numbers, or numbers that the survey has rounded down to a step,
        the shares and quantiles have intervals. A survey that declares no step can be asked with
        `step=1` if its answers were whole numbers all along. Without `bins` and `edges` there are
        as many bins as the reports can show; none, with a warning that says how many reports it
        takes, where they cannot show any. A bin has the whole numbers from left to right; with
        another step than 1, right belongs to the next bin. Edges must not cut a point: between
        whole numbers take 17.5. Quantiles have no standard error.

        Without a step the answer is a curve (`method` is "ems"), without errors and intervals
        (nan), and a warning says so. `figures["step"]` is None for a curve; with `margins`, which
        no curve has, there are also the design_effect and the weights, as of `estimate`.
        """
        return self._distribution(
            "distribution",
            survey,
            attribute,
            selection,
            bins=bins or 0,
            edges=edges,
            quantiles=quantiles,
            **_stated(step, confidence),
        )

    def between(
        self,
        survey: str,
        attribute: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        confidence: float = 0.95,
        **selection: Unpack[Weighting],
    ) -> Answer:
        """Return the share of the numbers from `low` to `high`.

        The entries are those of a row of `distribution`: estimate, standard_error, low and high;
        the name is the range. Of whole numbers both ends belong to the range; otherwise `high` does
        not, unless it is the attribute's greatest number. Where the range ends within a bin that
        was collected, the estimate takes the bin's numbers as evenly spread; the interval holds
        whatever they are like.
        """
        asked = [range_of((low, high))]
        return self._distribution(
            "between", survey, attribute, selection, ranges=asked, **_stated(step, confidence)
        )

    def rectangle(
        self,
        survey: str,
        ranges: Mapping[str, tuple[float, float]],
        *,
        confidence: float = 0.95,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return the share of the people with one number in a range, and another in another.

        `ranges` has (low, high) of two numbers in bins that a view asks together, by name, such as
        {"minutes": (480, 540), "distance": (0, 500)}; they end where bins do. The entries are those
        of `between`. Raises `InvalidInput` unless there are two.
        """
        if len(ranges) != 2:
            raise InvalidInput(f"a rectangle has the ranges of two numbers, got {len(ranges)}")
        (attribute, one), (other, second) = ranges.items()
        return self._distribution(
            "between",
            survey,
            attribute,
            selection,
            ranges=[range_of(one)],
            other=other,
            other_ranges=[range_of(second)],
            confidence=confidence,
        )

    def quantile(
        self,
        survey: str,
        attribute: str,
        q: float | Sequence[float] = 0.5,
        *,
        step: float | None = None,
        confidence: float = 0.95,
        **selection: Unpack[Weighting],
    ) -> Answer:
        """Return quantiles of a number, one row for each of `q`, as `distribution` does.

        The interval of a quantile ends where bins do, if only bins were collected.
        """
        asked = [q] if isinstance(q, int | float) else list(q)
        return self._distribution(
            "quantiles", survey, attribute, selection, quantiles=asked, **_stated(step, confidence)
        )

    def cdf(
        self,
        survey: str,
        attribute: str,
        *,
        step: float | None = None,
        confidence: float = 0.95,
        **selection: Unpack[Weighting],
    ) -> Answer:
        """Return the share at or below each point, or below the end of each bin, but the last.

        Columns as `distribution`; indexed by the point or the end, `below`. Each interval covers
        its own share with probability `confidence`.
        """
        return self._distribution(
            "cdf", survey, attribute, selection, cumulative=True, **_stated(step, confidence)
        )

    def _distribution(
        self, view: str, survey: str, attribute: str, selection: Selection, **asked: Any
    ) -> Answer:
        request = analyst_pb2.DistributionRequest(
            survey=survey, attribute=attribute, view=view, **asked, **fields(selection, Weighting)
        )
        return warned(self._calls.ask("Answers/Distribution", request, self._timeout))


def range_of(ends: tuple[float, float]) -> analyst_pb2.Range:
    """Return a range as a message."""
    low, high = ends
    return analyst_pb2.Range(low=low, high=high)


def _stated(step: float | None, confidence: float) -> dict[str, float]:
    """Return the fields of a distribution's request that are given."""
    return {"confidence": confidence} | ({} if step is None else {"step": step})
