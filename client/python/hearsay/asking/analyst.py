"""The analyst's client of a server: debiased statistics and randomised rows."""

import math
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np

from hearsay.asking.answer import Answer
from hearsay.asking.changes import Changes
from hearsay.asking.changes import change_request as change_request
from hearsay.asking.columns import NO_MAP
from hearsay.asking.comparing import Comparisons
from hearsay.asking.comparing import compare_request as compare_request
from hearsay.asking.distributions import Distributions
from hearsay.asking.distributions import range_of as range_of
from hearsay.asking.margins import read_margins as read_margins
from hearsay.asking.selection import LONG, fields, warned
from hearsay.asking.selection import Options as Options
from hearsay.asking.selection import Selection as Selection
from hearsay.asking.sets import Sets
from hearsay.asking.words import Words
from hearsay.checking.calls import AnalystCalls, open_checked
from hearsay.plans import plan as plans
from hearsay.plans.kinds import ByKind, Domain
from hearsay.plans.sealing import DELTA
from hearsay.sending.transport import Tls, Token
from hearsay.v1 import admin_pb2, analyst_pb2
from ldp.errors import InvalidInput, NotReady, needs

if TYPE_CHECKING:
    import pandas as pd


def _named(domain: Domain) -> list[object]:
    return [domain.labels, math.nan, math.nan, math.nan, 0]


_ANSWERS: ByKind[Callable[[Any], list[object]]] = ByKind.otherwise(
    _named,
    number=lambda domain: [None, domain.low, domain.high, domain.step, 0],
    bins=lambda domain: [None, domain.low, domain.high, domain.step, domain.count],
    ratings=lambda domain: [domain.labels, domain.low, domain.high, 0.0, 0],
)
"""What `Analyst.attributes` tells of the answers: values, low, high, step and bins."""

By = Literal["LEVEL", "PERIOD", "MAP", "PROPERTY"]
"""What answers may be given by, each by itself."""


class Analyst(Changes, Comparisons, Distributions, Sets, Words):
    """Ask for debiased statistics, each with its error.

    Every question takes the keywords of `Selection`: `levels`, `periods`, `first_period`,
    `last_period`, `where` and `panels` say which reports it is about. Every question raises
    `InvalidInput` where it cannot be asked, as for an unknown survey, attribute or level;
    `NotReady` where there are no reports yet; `Unreachable` where the server is; `AnswerRefused`
    where it answers what no honest server of this version does, such as a value that the survey
    lacks. Most return an `Answer`, which becomes a DataFrame by `.to_frame()`, JSON by
    `.to_json()`, CSV by `.to_csv()`, and a picture by `hearsay.asking.figure`. The columns that
    their docstrings list are those of the answer's first table, and `figures` are `Answer.figures`.
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
        self._calls: AnalystCalls = open_checked(target, tls=tls, token=token, insecure=insecure)
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

        Columns: title; kind, "categorical", "numeric", "set", "ratings" or "strings"; values, a
        tuple of values, keys or listed words (None of a number); low, high and step of a number or
        rating (nan of values; a step of 0 is none); bins of a number (0: none); reports.
        """
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        shown = self.show_survey(survey)
        rows = []
        plan = plans.parse(shown.plan)
        for name, attribute in plan.attributes.items():
            domain = attribute.domain
            asked = plan.questions_of([name])
            reports = sum(sum(r.reports) for r in shown.reports if r.attribute in asked)
            answers = _ANSWERS[domain](domain)
            rows.append([attribute.title, domain.field, *answers, reports])
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

    def estimate(self, survey: str, attribute: str, **options: Unpack[Options]) -> Answer:
        """Return an answer: one row per value, or the row "mean" of a number.

        Columns: estimate (unbiased, so possibly outside its range, unless `consistency` or
        `recover` was asked for), standard_error (for the population), low and high; raw with
        `consistency` or `recover`: the unbiased estimate, whose error and interval the others
        are; effective_sample_size of frequencies: how many people asked without privacy would
        tell as much; shift_down and shift_up with `forged`. The table's `left_out` is how many rows
        `top` or `values` left out. Ratings have a table "shares" beside, of who rated each key.

        With reports of several levels the estimate is of the mix of people who answered
        ("stratified"), or under the bound that the survey declares (`levels_differ_at_most`); the
        same holds for the maps that people chose. alike, alike_low and alike_high are then the
        pooled estimate, for people of all levels and maps who answer alike;
        `figures["homogeneity"]` is the p-value of the test that they do, and
        `figures["detectable_difference"]` the smallest difference between two levels that
        this test would have found in 80% of cases. A `method` of pooling gives the pooled
        estimate alone, with a warning where the levels differ.

        With `margins` the estimate is of the population, by weights of public groups; unweighted
        and unweighted_standard_error are those of the respondents as they are.
        `figures["design_effect"]` is by what factor unequal weights alone raise the variance
        (Kish), and `figures["weights"]` the smallest and the largest of them.
        """
        return warned(self._estimated(survey, attribute, options))

    def sums(
        self,
        survey: str,
        attribute: str,
        sets: Sequence[Sequence[str]],
        **options: Unpack[Options],
    ) -> Answer:
        """Return the share of people whose value is in each set, one row for each.

        The index has the values joined by " + ". Columns and options are those of `estimate`. The
        errors are those of the covariance between the values' estimates. A sum is that of the
        estimates of its values; where levels are weighed by their errors ("inverse_variance",
        "scalar", `levels_differ_at_most`), it is weighed by its own.
        """
        if not sets:
            raise InvalidInput("give one set of values at least, got none")
        return warned(self._estimated(survey, attribute, options, sets))

    def by_level(self, survey: str, attribute: str, **options: Unpack[Options]) -> Answer:
        """Return `estimate` of each level by itself, indexed by level and value."""
        return self._grouped(survey, attribute, "LEVEL", options)

    def by_period(self, survey: str, attribute: str, **options: Unpack[Options]) -> Answer:
        """Return `estimate` of each period by itself, indexed by period and value."""
        return self._grouped(survey, attribute, "PERIOD", options)

    def by_map(self, survey: str, attribute: str, **options: Unpack[Options]) -> Answer:
        """Return `estimate` of the people who chose each map of the attribute, indexed by map and
        value; "no map" are those who chose none."""
        return self._grouped(survey, attribute, "MAP", options)

    def by_property(
        self, survey: str, attribute: str, name: str, **options: Unpack[Options]
    ) -> Answer:
        """Return `estimate` of the devices with each value of a public property, indexed by the
        property's name and value; "(not given)" are those whose app gave none. A value with fewer
        than 20 reports of a level and period is left out, with the smallest others where such a
        one could be told by subtraction, and a warning names them.

        `compare` tests whether two of these groups differ.
        """
        return self._grouped(survey, attribute, "PROPERTY", options, name)

    def watch(
        self, survey: str, attribute: str, *, interval: float = 1.0, **options: Unpack[Options]
    ) -> Iterator[Answer]:
        """Yield `estimate`, and again when reports have come in, at most every `interval` seconds.

        Ends when the iterator is closed or the server stops.
        """
        question = _request(survey, attribute, options)
        request = analyst_pb2.WatchRequest(question=question, interval=interval)
        yield from self._calls.asked("Answers/Watch", request)

    def forecast(
        self, survey: str, attribute: str, *, goal: float | None = None, **options: Unpack[Options]
    ) -> Answer:
        """Return the error of each estimate now, with twice as many reports, and for a goal.

        Columns: estimate, standard_error, low and high, those of `estimate` with these options;
        with_twice, the standard error with twice as many reports; with `goal`, reports_for_goal:
        how many reports would make the standard error that small. Its figures are those of
        `estimate`, and closed: whether the survey takes no more reports; rate: reports per period,
        on average over up to 7 periods before the present one of the server's clock; twice: the
        period in which there will be twice as many reports at this rate; and with `goal` reached:
        the period by whose end every row will have it. They are None where the survey is closed or
        has no periods, and where no rate is known: of a first period, and where no reports came of
        late.

        The error of an estimate of n people is c / sqrt(n) as long as as large a share of them
        chooses each level: the forecast assumes that, and that further reports are of other people.
        Further periods of the same people may not lower the error, which allows for them
        (`Answer.repeats`): the periods named are then too early. Raises `InvalidInput` for
        a goal that is not positive, and where `options` select periods, of which no more reports
        will come.
        """
        question = _request(survey, attribute, options)
        request = analyst_pb2.ForecastRequest(question=question, goal=goal)
        return warned(self._calls.ask("Answers/Forecast", request, self._timeout))

    def suspicions(
        self,
        survey: str,
        attribute: str,
        *,
        targets: Sequence[str] = (),
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return tests of whether the stored reports look forged, by level and test.

        Columns: statistic, p_value (where reports are honest, it is below alpha with a
        probability of about alpha or less), reports. A warning says at which levels a test was
        left out. `targets` are values that an attack may have promoted, by default the three most
        frequent. The server reads all the reports: that takes time.
        """
        request = analyst_pb2.SuspicionsRequest(
            survey=survey, attribute=attribute, targets=targets, **fields(selection, Selection)
        )
        return warned(self._calls.ask("Answers/Suspicions", request, LONG))

    def mixing(
        self,
        survey: str,
        *,
        delta: float = DELTA,
        forged: int = 0,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return what mixing by an honest shuffler gives a sealed survey's records, by cohort.

        A cohort are records of one period that left the shuffler together, and answer the same
        questions at the same levels and maps. Index: period, the last one first, level, attributes
        (the questions that a record answers, with the map that was chosen). Columns: records;
        epsilon, of one whole record, which every device's ledger is charged; shuffled_epsilon, at
        `delta`, which is nan where nothing is claimed: of fewer than 1,000 records that are not
        `forged`, of reports from memos, and where a report may reveal an answer or protects by
        distance. `figures["trust"]` says who must be honest. Records that left the shuffler at
        another time have a row of their own. Raises `InvalidInput` unless the survey is sealed and
        has neither panels nor properties, 0 < delta < 1 and forged >= 0.
        """
        if forged < 0:
            raise InvalidInput(f"expected forged >= 0, got {forged}")
        request = analyst_pb2.MixingRequest(
            survey=survey, delta=delta, forged=forged, **fields(selection, Selection)
        )
        return self._calls.ask("Answers/Mixing", request, LONG)

    def rows(self, survey: str, **selection: Unpack[Selection]) -> "pd.DataFrame":
        """Return the stored rows, as randomised as they came, in random order.

        Columns: period, then for each attribute its code (an integer where all levels have
        integers, else bytes as on the wire), `<attribute>__level`, and where it has maps
        `<attribute>__map`; missing where the row has no answer. With `levels`, answers at other
        levels are missing too, and a row without an answer is left out. `frame.attrs["plan"]` has
        the plan's bytes, which say what the codes mean, and `frame.attrs["channels"]` how they were
        randomised (`hearsay.asking.rows.channels`).
        """
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        from hearsay.asking import rows

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
        return self._calls.stream("Answers/ExportRows", request, analyst_pb2.ExportRowsResponse)

    def _estimated(
        self, survey: str, attribute: str, options: Options, sums: Sequence[Sequence[str]] = ()
    ) -> Answer:
        request = _request(survey, attribute, options, sums)
        return self._calls.ask("Answers/Estimate", request, self._timeout)

    def _grouped(
        self, survey: str, attribute: str, by: By, options: Options, name: str = ""
    ) -> Answer:
        request = analyst_pb2.EstimateByRequest(
            question=_request(survey, attribute, options), by=by, property=name
        )
        return warned(self._calls.ask("Answers/EstimateBy", request, self._timeout))

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
