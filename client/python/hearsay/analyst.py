"""The analyst's client of a server: debiased statistics and randomised rows."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np

from hearsay.asking import LONG, fields, joined, single
from hearsay.asking import Selection as Selection
from hearsay.columns import NO_MAP
from hearsay.plans import plan as plans
from hearsay.plans.domains import Binned, Categorical, Ratings, SetOf
from hearsay.sending.transport import Tls, Token, open_calls
from hearsay.together import Together, groups_request
from hearsay.v1 import admin_pb2, analyst_pb2
from ldp.errors import InvalidInput, NotReady, needs

if TYPE_CHECKING:
    import pandas as pd


class Options(Selection, total=False):
    """What an estimate can be asked with, besides a `Selection`.

    `confidence` is the intervals', for each row by itself, or with `simultaneous` for all rows
    at once. `method` pools levels: "mle", "gls", "inverse_variance" or "scalar", by default the
    best that is quick. `consistency` makes frequencies a distribution by a method such as
    "norm-sub". `forged` asks how far so many forged reports could move the estimate; `recover`
    takes so many forged reports per genuine one out by LDPRecover.

    `top` asks for so many rows, those of the largest estimates, in their order; `values` for the
    rows of these values, in this order. Intervals are those of the whole answer: simultaneous ones
    cover the rows that are left out, too. `sizes` asks for the sizes of sets instead of their items
    (`Analyst.set_sizes`).
    """

    confidence: float
    simultaneous: bool
    method: str
    consistency: str
    forged: int
    recover: float
    top: int
    values: Sequence[str]
    sizes: bool


class Analyst(Together):
    """Ask for debiased statistics, each with its error.

    Every question takes the keywords of `Selection`: `levels`, `periods`, `first_period` and
    `last_period` say which reports it is about. Every question raises `InvalidInput` where it
    cannot be asked, as for an unknown survey, attribute or level; `NotReady` where there are no
    reports yet; `Unreachable` where the server is; and those that return DataFrames `MissingExtra`
    without pandas.
    """

    def __init__(
        self,
        target: str,
        *,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
        timeout: float = 30.0,
    ) -> None:
        """Connect to "host:port", or over HTTP to "https://host"; each question waits at most
        `timeout` seconds.

        `tls` names other files than the system's authorities; `token` is the analyst's, where
        the server asks for one.
        """
        self._calls = open_calls(target, tls=tls, token=token, insecure=insecure)
        self._timeout = timeout

    def surveys(self) -> "pd.DataFrame":
        """Return the server's surveys, by name: title, batches, records, closed."""
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        found = self.list_surveys()
        columns = ["title", "batches", "records", "closed"]
        rows = [[getattr(status, column) for column in columns] for status in found]
        return pd.DataFrame(rows, pd.Index([s.survey for s in found], name="survey"), columns)

    def attributes(self, survey: str) -> "pd.DataFrame":
        """Return what a survey asks, by attribute.

        Columns: title; kind, "categorical", "numeric", "set" or "ratings"; values, a tuple of
        values or keys (None of a number); low, high and step of a number or rating (nan of values;
        a step of 0 is none); bins of a number (0: none); reports.
        """
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        shown = self.show_survey(survey)
        rows = []
        plan = plans.parse(shown.plan)
        for name, attribute in plan.attributes.items():
            domain = attribute.domain
            bins = domain.count if isinstance(domain, Binned) else 0
            if isinstance(domain, Categorical | SetOf):
                name_of = "categorical" if isinstance(domain, Categorical) else "set"
                kind = [name_of, domain.values, math.nan, math.nan, math.nan]
            elif isinstance(domain, Ratings):
                kind = ["ratings", domain.keys, domain.low, domain.high, 0.0]
            else:
                kind = ["numeric", None, domain.low, domain.high, domain.step]
            asked = plan.questions_of([name])
            reports = sum(sum(r.reports) for r in shown.reports if r.attribute in asked)
            rows.append([attribute.title, *kind, bins, reports])
        index = pd.Index(list(plan.attributes), name="attribute")
        columns = ["title", "kind", "values", "low", "high", "step", "bins", "reports"]
        return pd.DataFrame(rows, index, columns)

    def levels(self, survey: str) -> "pd.DataFrame":
        """Return a survey's levels, by name: epsilon (of a whole record), and default."""
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        plan = plans.parse(self.show_survey(survey).plan)
        levels = plan.levels.values()
        rows = [[level.epsilon, level.name == plan.default_level] for level in levels]
        index = pd.Index([level.name for level in levels], name="level")
        return pd.DataFrame(rows, index, ["epsilon", "default"])

    def reports(self, survey: str) -> "pd.DataFrame":
        """Return how many reports a survey holds: a row per period, a column per attribute and
        level, and map if an attribute has maps. Only periods, and attributes at levels, that hold
        reports are there."""
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        shown = self.show_survey(survey)
        plan, names = plans.parse(shown.plan), ["attribute", "level"]
        if any(plan.maps(name) for name in plan.attributes):
            names.append("map")
        keys = [(each.attribute, each.level, each.map or NO_MAP) for each in shown.reports]
        columns = pd.MultiIndex.from_tuples([key[: len(names)] for key in keys], names=names)
        counts = np.array([each.reports for each in shown.reports], dtype=np.int64)
        index = pd.Index(list(shown.periods), name="period")
        return pd.DataFrame(counts.reshape(len(columns), len(index)).T, index, columns)

    def estimate(self, survey: str, attribute: str, **options: Unpack[Options]) -> "pd.DataFrame":
        """Return a DataFrame: one row per value, or the row "mean" of a number.

        Columns: estimate (unbiased, so possibly outside its range, unless `consistency` or
        `recover` was asked for), standard_error (for the population), low and high; raw with
        `consistency` or `recover`: the unbiased estimate, whose error and interval the others
        are; effective_sample_size of frequencies: how many people asked without privacy would
        tell as much; shift_down and shift_up with `forged`. `frame.attrs` holds the survey,
        attribute, statistic, confidence, method, homogeneity, warning, the number of reports,
        repeats: how often one person may be among them, which errors allow for, and rows_left_out:
        how many rows `top` or `values` left out.

        With reports of several levels the estimate is of the mix of people who answered
        ("stratified"), or under the bound that the survey declares (`levels_differ_at_most`); the
        same holds for the maps that people chose. alike, alike_low and alike_high are then the
        pooled estimate, for people of all levels and maps who answer alike;
        `frame.attrs["homogeneity"]` is the p-value of the test that they do, and
        `frame.attrs["detectable_difference"]` the smallest difference between two levels that
        this test would have found in 80% of cases. A `method` of pooling gives the pooled
        estimate alone, with a warning where the levels differ.

        Needs pandas (`pip install 'hearsay-ldp[analyst]'`), as all that return DataFrames.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        answer = self.query(survey, attribute, **options)
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=2)
        return frames.estimates(answer)

    def sums(
        self,
        survey: str,
        attribute: str,
        sets: Sequence[Sequence[str]],
        **options: Unpack[Options],
    ) -> "pd.DataFrame":
        """Return the share of people whose value is in each set, one row for each.

        The index has the values joined by " + ". Columns and options are those of `estimate`. The
        errors are those of the covariance between the values' estimates. A sum is that of the
        estimates of its values; where levels are weighed by their errors ("inverse_variance",
        "scalar", `levels_differ_at_most`), it is weighed by its own.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        if not sets:
            raise InvalidInput("give one set of values at least, got none")
        answer = self.query(survey, attribute, sums=sets, **options)
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=2)
        return frames.sums(answer)

    def set_sizes(self, survey: str, attribute: str, **options: Unpack[Options]) -> "pd.DataFrame":
        """Return how many items people's sets have: a row per size, and the row "mean".

        Columns and options are those of `estimate`, except `consistency`, `forged`, `recover`,
        `top` and `values`. Where a survey counts `at_most` items of larger sets (`clamp`) the last
        size is that of sets of so many items or more, and a warning tells their share.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        options["sizes"] = True
        answer = self.query(survey, attribute, **options)
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=2)
        return frames.estimates(answer)

    def ratings(self, survey: str, attribute: str, **options: Unpack[Options]) -> "pd.DataFrame":
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
    ) -> "pd.DataFrame":
        """Return the share of people who have both of two items of a set, the largest first.

        There are `top` rows, indexed by first and second. Columns: estimate, standard_error, low,
        high, and independent, the product of the two items' shares. The server reads all the
        reports: that takes time. Raises `InvalidInput` where a report has one member alone.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        answer = self.query_pairs(
            analyst_pb2.PairsRequest(
                survey=survey,
                attribute=attribute,
                top=top,
                confidence=confidence,
                **fields(selection, Selection),
            )
        )
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=2)
        return frames.pairs(answer)

    def by_level(self, survey: str, attribute: str, **options: Unpack[Options]) -> "pd.DataFrame":
        """Return `estimate` of each level by itself, indexed by level and value."""
        return self._grouped(survey, attribute, "LEVEL", options)

    def by_period(self, survey: str, attribute: str, **options: Unpack[Options]) -> "pd.DataFrame":
        """Return `estimate` of each period by itself, indexed by period and value."""
        return self._grouped(survey, attribute, "PERIOD", options)

    def by_map(self, survey: str, attribute: str, **options: Unpack[Options]) -> "pd.DataFrame":
        """Return `estimate` of the people who chose each map of the attribute, indexed by map and
        value; "no map" are those who chose none."""
        return self._grouped(survey, attribute, "MAP", options)

    def watch(
        self, survey: str, attribute: str, *, interval: float = 1.0, **options: Unpack[Options]
    ) -> Iterator["pd.DataFrame"]:
        """Yield `estimate`, and again when reports have come in, at most every `interval` seconds.

        Ends when the iterator is closed or the server stops.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        for answer in self.watch_query(survey, attribute, interval=interval, **options):
            yield frames.estimates(answer)

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
        **selection: Unpack[Selection],
    ) -> tuple["pd.DataFrame", "pd.DataFrame"]:
        """Return how a number is distributed: a histogram, and quantiles.

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
        (nan), and a warning says so. `frame.attrs` of both holds the survey, attribute,
        confidence, method, step (None for a curve), warning, the number of reports, and repeats.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        answer = self._distribution(
            survey,
            attribute,
            selection,
            bins=bins or 0,
            edges=edges,
            quantiles=quantiles,
            **_stated(step, confidence),
        )
        return frames.histogram(answer), frames.quantiles(answer)

    def between(
        self,
        survey: str,
        attribute: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        confidence: float = 0.95,
        **selection: Unpack[Selection],
    ) -> "pd.Series":
        """Return the share of the numbers from `low` to `high`.

        The entries are those of a row of `distribution`: estimate, standard_error, low and high;
        the name is the range. Of whole numbers both ends belong to the range; otherwise `high` does
        not, unless it is the attribute's greatest number. Where the range ends within a bin that
        was collected, the estimate takes the bin's numbers as evenly spread; the interval holds
        whatever they are like. `series.attrs` are those of `distribution`.
        """
        with needs("a Series", "analyst"):
            from hearsay import frames

        asked = [range_of((low, high))]
        answer = self._distribution(
            survey, attribute, selection, ranges=asked, **_stated(step, confidence)
        )
        return frames.ranges(answer).iloc[0]

    def rectangle(
        self,
        survey: str,
        ranges: Mapping[str, tuple[float, float]],
        *,
        confidence: float = 0.95,
        **selection: Unpack[Selection],
    ) -> "pd.Series":
        """Return the share of the people with one number in a range, and another in another.

        `ranges` has (low, high) of two numbers in bins that a view asks together, by name, such as
        {"minutes": (480, 540), "distance": (0, 500)}; they end where bins do. The entries are those
        of `between`. Raises `InvalidInput` unless there are two.
        """
        with needs("a Series", "analyst"):
            from hearsay import frames

        if len(ranges) != 2:
            raise InvalidInput(f"a rectangle has the ranges of two numbers, got {len(ranges)}")
        (attribute, one), (other, second) = ranges.items()
        answer = self._distribution(
            survey,
            attribute,
            selection,
            ranges=[range_of(one)],
            other=other,
            other_ranges=[range_of(second)],
            confidence=confidence,
        )
        return frames.ranges(answer).iloc[0]

    def quantile(
        self,
        survey: str,
        attribute: str,
        q: float | Sequence[float] = 0.5,
        *,
        step: float | None = None,
        confidence: float = 0.95,
        **selection: Unpack[Selection],
    ) -> "pd.DataFrame":
        """Return quantiles of a number, one row for each of `q`, as `distribution` does.

        The interval of a quantile ends where bins do, if only bins were collected.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        asked = [q] if isinstance(q, int | float) else list(q)
        answer = self._distribution(
            survey, attribute, selection, quantiles=asked, **_stated(step, confidence)
        )
        return frames.quantiles(answer)

    def cdf(
        self,
        survey: str,
        attribute: str,
        *,
        step: float | None = None,
        confidence: float = 0.95,
        **selection: Unpack[Selection],
    ) -> "pd.DataFrame":
        """Return the share at or below each point, or below the end of each bin, but the last.

        Columns as `distribution`; indexed by the point or the end, `below`. Each interval covers
        its own share with probability `confidence`.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        answer = self._distribution(
            survey, attribute, selection, cumulative=True, **_stated(step, confidence)
        )
        return frames.cumulative(answer)

    def _distribution(
        self, survey: str, attribute: str, selection: Selection, **asked: Any
    ) -> analyst_pb2.DistributionResponse:
        answer = self.query_distribution(
            analyst_pb2.DistributionRequest(
                survey=survey, attribute=attribute, **asked, **fields(selection, Selection)
            )
        )
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=3)
        return answer

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
    ) -> "pd.DataFrame":
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
        `frame.attrs` holds the survey, attribute, statistic, confidence, the parts' numbers of
        reports, warning, and repeats: the same people may be in both parts, and errors allow for
        the worst of that.
        """
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        if by:
            if first is not None or second is not None:
                raise InvalidInput("give two parts of the reports or by, not both")
            found = self.query_groups(
                groups_request(
                    survey,
                    attribute,
                    by,
                    reference=reference,
                    confidence=confidence,
                    simultaneous=simultaneous,
                    selection=selection,
                )
            )
            if found.warning:
                warnings.warn(found.warning, stacklevel=2)
            return frames.group_differences(found)
        if first is None or second is None or reference or selection:
            raise InvalidInput(
                "compare two parts of the reports, each with a selection of its own, or give by"
            )
        question = compare_request(
            survey,
            attribute,
            first,
            second,
            confidence=confidence,
            simultaneous=simultaneous,
        )
        answer = self.query_compare(question)
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=2)
        return frames.comparison(answer)

    def suspicions(
        self,
        survey: str,
        attribute: str,
        *,
        targets: Sequence[str] = (),
        **selection: Unpack[Selection],
    ) -> "pd.DataFrame":
        """Return tests of whether the stored reports look forged, by level and test.

        Columns: statistic, p_value (where reports are honest, it is below alpha with a
        probability of about alpha or less), reports. A warning says at which levels a test was
        left out. `targets` are values that an attack may have promoted, by default the three most
        frequent. The server reads all the reports: that takes time.
        """
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        answer = self.query_suspicions(
            analyst_pb2.SuspicionsRequest(
                survey=survey,
                attribute=attribute,
                targets=targets,
                **fields(selection, Selection),
            )
        )
        tests = [(each.level, each.test) for each in answer.suspicions]
        table = pd.DataFrame(
            [[each.statistic, each.p_value, each.reports] for each in answer.suspicions],
            index=pd.MultiIndex.from_tuples(tests, names=["level", "test"]),
            columns=["statistic", "p_value", "reports"],
        )
        table.attrs = {"targets": list(answer.targets), "warning": answer.warning}
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=2)
        return table

    def rows(self, survey: str, **selection: Unpack[Selection]) -> "pd.DataFrame":
        """Return the stored rows, as randomised as they came, in random order.

        Columns: period, then for each attribute its code (an integer where all levels have
        integers, else bytes as on the wire), `<attribute>__level`, and where it has maps
        `<attribute>__map`; missing where the row has no answer. With `levels`, answers at other
        levels are missing too, and a row without an answer is left out. `frame.attrs["plan"]` has
        the plan's bytes, which say what the codes mean, and `frame.attrs["channels"]` how they were
        randomised (`hearsay.rows.channels`).
        """
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        from hearsay import rows

        chunks = self.chunks(survey, **selection)
        data = next(chunks).plan
        plan = plans.parse(data)
        parts = [(chunk.period, chunk.rows, rows.decode(plan, chunk)) for chunk in chunks]
        if not parts:
            raise NotReady(f"there are no such rows of {survey!r} stored")
        levels = pd.CategoricalDtype(list(plan.levels))
        columns: dict[str, object] = {
            "period": np.repeat([period for period, _, _ in parts], [n for _, n, _ in parts])
        }
        for name in plan.questions:
            attribute = rows.AttributeRows.joined([decoded[name] for _, _, decoded in parts])
            columns[name] = attribute.codes
            if attribute.codes.dtype != object:
                columns[name] = pd.arrays.IntegerArray(attribute.codes, attribute.absent)
            columns[f"{name}__level"] = pd.Categorical.from_codes(attribute.levels, dtype=levels)
            if attribute.maps is not None:
                maps = pd.CategoricalDtype(list(rows.map_labels(plan, name)))
                columns[f"{name}__map"] = pd.Categorical.from_codes(attribute.maps, dtype=maps)
        table = pd.DataFrame(columns)
        table.attrs = {"survey": survey, "plan": data, "channels": rows.channels(plan)}
        return table

    # --- the same as messages, without pandas ----------------------------------------------

    def list_surveys(self) -> Sequence[admin_pb2.SurveyStatus]:
        """Return the server's surveys as messages, by name."""
        request = admin_pb2.ListSurveysRequest()
        kind = admin_pb2.ListSurveysResponse
        return self._calls.call("Admin/ListSurveys", request, kind, self._timeout).surveys

    def show_survey(self, survey: str) -> admin_pb2.ShowSurveyResponse:
        """Return a survey's plan, and how many reports it holds, as a message."""
        request = admin_pb2.ShowSurveyRequest(survey=survey)
        kind = admin_pb2.ShowSurveyResponse
        return self._calls.call("Admin/ShowSurvey", request, kind, self._timeout)

    def query(
        self,
        survey: str,
        attribute: str,
        sums: Sequence[Sequence[str]] = (),
        **options: Unpack[Options],
    ) -> analyst_pb2.EstimateResponse:
        """Return an estimate as a message, with the cohorts that went in.

        `sums` are sets of values, whose frequencies are summed.
        """
        request = _request(survey, attribute, options, sums)
        kind = analyst_pb2.EstimateResponse
        return single(self._calls.stream("Analyst/Estimate", request, kind, self._timeout))

    def query_by(
        self,
        survey: str,
        attribute: str,
        by: Literal["LEVEL", "PERIOD", "MAP"],
        sums: Sequence[Sequence[str]] = (),
        **options: Unpack[Options],
    ) -> Iterator[analyst_pb2.EstimateResponse]:
        """Yield an estimate for each "LEVEL", "PERIOD" or "MAP" with reports, in order."""
        request = analyst_pb2.EstimateByRequest(
            question=_request(survey, attribute, options, sums),
            by=by,
        )
        kind = analyst_pb2.EstimateResponse
        return joined(self._calls.stream("Analyst/EstimateBy", request, kind, self._timeout))

    def watch_query(
        self,
        survey: str,
        attribute: str,
        *,
        sums: Sequence[Sequence[str]] = (),
        interval: float = 1.0,
        **options: Unpack[Options],
    ) -> Iterator[analyst_pb2.EstimateResponse]:
        """Yield an estimate as a message, and again when reports have come in, as `watch`."""
        request = analyst_pb2.WatchRequest(
            question=_request(survey, attribute, options, sums), interval=interval
        )
        kind = analyst_pb2.EstimateResponse
        return joined(self._calls.stream("Analyst/Watch", request, kind))

    def query_compare(self, request: analyst_pb2.CompareRequest) -> analyst_pb2.CompareResponse:
        """Return the differences between two parts of the reports as a message."""
        kind = analyst_pb2.CompareResponse
        return single(self._calls.stream("Analyst/Compare", request, kind, self._timeout))

    def query_distribution(
        self, request: analyst_pb2.DistributionRequest
    ) -> analyst_pb2.DistributionResponse:
        """Return a histogram and quantiles as a message."""
        kind = analyst_pb2.DistributionResponse
        return self._calls.call("Analyst/Distribution", request, kind, self._timeout)

    def query_suspicions(
        self, request: analyst_pb2.SuspicionsRequest
    ) -> analyst_pb2.SuspicionsResponse:
        """Return the tests for forged reports as a message; waits up to an hour."""
        kind = analyst_pb2.SuspicionsResponse
        return self._calls.call("Analyst/Suspicions", request, kind, LONG)

    def query_pairs(self, request: analyst_pb2.PairsRequest) -> analyst_pb2.PairsResponse:
        """Return the shares of pairs of items as a message; waits up to an hour."""
        kind = analyst_pb2.PairsResponse
        return self._calls.call("Analyst/Pairs", request, kind, LONG)

    def chunks(
        self,
        survey: str,
        *,
        since: analyst_pb2.Exported | None = None,
        **selection: Unpack[Selection],
    ) -> Iterator[analyst_pb2.ExportRowsResponse]:
        """Yield the plan, then the stored rows as they are streamed, a megabyte or so at a time.

        With `since` each period's rows are followed by a message that says what they are of, and
        periods that `since` has and that are unchanged have no rows (`ExportRowsRequest`).
        """
        chosen = fields(selection, Selection)
        request = analyst_pb2.ExportRowsRequest(survey=survey, since=since, **chosen)
        return self._calls.stream("Analyst/ExportRows", request, analyst_pb2.ExportRowsResponse)

    def _grouped(
        self, survey: str, attribute: str, by: Literal["LEVEL", "PERIOD", "MAP"], options: Options
    ) -> "pd.DataFrame":
        with needs("a DataFrame", "analyst"):
            from hearsay import frames

        answers = list(self.query_by(survey, attribute, by, **options))
        for answer in answers:
            if answer.warning:
                warnings.warn(f"{answer.group}: {answer.warning}", stacklevel=3)
        return frames.grouped(answers, by.lower())

    def close(self) -> None:
        """Close the connection."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def range_of(ends: tuple[float, float]) -> analyst_pb2.Range:
    """Return a range as a message."""
    low, high = ends
    return analyst_pb2.Range(low=low, high=high)


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


def _stated(step: float | None, confidence: float) -> dict[str, float]:
    """Return the fields of a distribution's request that are given."""
    return {"confidence": confidence} | ({} if step is None else {"step": step})


def _request(
    survey: str, attribute: str, options: Options, sums: Sequence[Sequence[str]] = ()
) -> analyst_pb2.EstimateRequest:
    if options.get("top", 1) < 1:
        raise InvalidInput(f"top must be >= 1, got {options['top']}")
    if isinstance(options.get("values"), str):
        raise InvalidInput(f"values must be a list of values, got {options['values']!r}")
    if any(isinstance(values, str) for values in sums):
        raise InvalidInput(f"each sum is a list of values, got {sums!r}")
    return analyst_pb2.EstimateRequest(
        survey=survey,
        attribute=attribute,
        sums=[analyst_pb2.ValueSet(values=values) for values in sums],
        **fields(options, Options),
    )
