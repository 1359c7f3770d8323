"""Analysts' questions as functions that run in a process of their own.

Their arguments and results can be pickled: a plan goes as the bytes that were frozen, and answers
as the bytes of the messages to send, so that the server neither parses nor writes them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

import hearsay.plans.plan
from hearsay.asking import cautions, roles, wire
from hearsay.asking.answer import Answer, Note, Subject, Table
from hearsay.asking.columns import NOT_GIVEN
from hearsay.plans.kinds import Categorical, Value
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.answers import (
    changes,
    distributions,
    few,
    fits,
    forecasts,
    joints,
    mixing,
    queries,
    records,
    rectangles,
    rows,
    sums,
    tables,
    weighted,
)
from hearsay_server.answers import pairs as paired
from hearsay_server.answers import words as worded
from hearsay_server.answers.queries import Tallies
from hearsay_server.ingest.intake import Cohort
from hearsay_server.storage.selection import Selected
from hearsay_server.storage.sums import Sum
from ldp import InvalidInput
from ldp.assurance import suspicion
from ldp.assurance.suspicion import Supports
from ldp.core.coins import Coins
from ldp.estimating.pairs import PairTally

_TARGETS = 3
"""Values tested for being supported together, unless some are named: fewer hide among honest
reports, and more are rarely in one bucket of a hash."""

_REHEARSED = 64
"""Answers of each level of which a question that is watched is asked before any report came."""

Page = Sequence[collector_pb2.Batch]

_parsed = lru_cache(maxsize=1)(hearsay.plans.plan.parse)


def estimate(frozen: bytes, question: analyst_pb2.EstimateRequest, tallies: Tallies) -> list[bytes]:
    """Answer `Estimate` in one message; raise as `queries.estimate`."""
    return [_data(_estimated(_parsed(frozen), question, tallies))]


def by(
    frozen: bytes,
    question: analyst_pb2.EstimateRequest,
    groups: Mapping[str, Tallies],
    by: str,
    left_out: Note | None = None,
) -> bytes:
    """Answer `EstimateBy` in one message, from the tallies of each group; raise as
    `queries.estimate`.

    `by` is "level", "period", "map", or the property of which the groups are the values.
    """
    plan = _parsed(frozen)
    answers = {}
    for name, part in groups.items():
        own = question
        if question.margins and by in plan.properties.by_name:
            own = analyst_pb2.EstimateRequest()
            own.CopyFrom(question)
            value = "" if name == NOT_GIVEN else name
            own.selection.where.add(property=by, values=[value])
        answers[name] = _estimated(plan, own, part)
    return _data(tables.by(answers, by, left_out))


def of_sums(frozen: bytes, question: analyst_pb2.EstimateRequest, found: Sequence[Sum]) -> bytes:
    """Answer `Estimate` of a survey with two servers in one message; raise as `sums.answer`."""
    return _data(sums.answer(_parsed(frozen), question, found))


def forecast(
    frozen: bytes,
    request: analyst_pb2.ForecastRequest,
    found: Tallies | Sequence[Sum],
    arrived: forecasts.Arrivals,
) -> list[bytes]:
    """Answer `Forecast` in one message, from what `Estimate` is from; raise as it does."""
    plan, question = _parsed(frozen), request.question
    if isinstance(found, Mapping):
        answer = _estimated(plan, question, found)
    else:
        answer = sums.answer(plan, question, found)
    goal = request.goal if request.HasField("goal") else None
    return [_data(forecasts.forecast(answer, goal, plan.period, arrived))]


def of_mixes(
    frozen: bytes, request: analyst_pb2.MixingRequest, found: Sequence[analyst_pb2.Mixed]
) -> bytes:
    """Answer `Mixing` in one message."""
    return _data(mixing.mixing(_parsed(frozen), request, found))


def _estimated(plan: Plan, question: analyst_pb2.EstimateRequest, tallies: Tallies) -> Answer:
    work = weighted.estimate if question.margins else queries.estimate
    return work(plan, question, tallies)


def rehearse(frozen: bytes, question: analyst_pb2.EstimateRequest) -> None:
    """Raise `InvalidInput` for a question that no reports could answer, as `estimate` would.

    Some people of each selected level answer anything, and the question is asked of each level's
    reports by itself: it is refused where no level has an answer.
    """
    plan = _parsed(frozen)
    plain = analyst_pb2.EstimateRequest()
    plain.CopyFrom(question)
    if question.margins:
        weighted.check(plan, question)
        plain.ClearField("margins")
    refused: InvalidInput | None = None
    for level in question.selection.levels or plan.levels:
        try:
            queries.estimate(plan, plain, _rehearsed(plan, question, level))
        except InvalidInput as error:
            refused = refused or error
        else:
            return
    if refused:
        raise refused


def _rehearsed(plan: Plan, question: analyst_pb2.EstimateRequest, level: str) -> Tallies:
    """Return the tallies of people of a level who answer anything: for each selected map."""
    coins = Coins()
    tallies = {}
    for asked in plan.questions_of(plan.parts(question.attribute)):
        domain = plan.questions[asked].domain
        for name, mechanism in plan.levels[level].by_map[asked].items():
            if name in (question.selection.maps or (name,)):
                answers: list[Value] = [domain.anything(coins) for _ in range(_REHEARSED)]
                settled = [domain.settled(answer, coins) for answer in answers]
                codes = [mechanism.randomize(value, coins) for value in settled]
                cohort = Cohort(plan.survey, plan.revision, asked, level, "", name)
                tallies[cohort] = mechanism.tally(codes)
    return tallies


def distribution(
    frozen: bytes, question: analyst_pb2.DistributionRequest, tallies: Tallies
) -> list[bytes]:
    """Answer `Distribution` in one message; raise as `distributions.distribution`."""
    work = rectangles.rectangles if question.other else distributions.distribution
    return [_data(work(_parsed(frozen), question, tallies))]


def comparison(
    frozen: bytes, question: analyst_pb2.CompareRequest, tallies: Tallies, first: Collection[Cohort]
) -> list[bytes]:
    """Answer `Compare` in one message; raise as `queries.compare`.

    The tallies are of both parts, of which the first has the cohorts `first`.
    """
    one = {cohort: tally for cohort, tally in tallies.items() if cohort in first}
    other = {cohort: tally for cohort, tally in tallies.items() if cohort not in first}
    return [_data(queries.compare(_parsed(frozen), question, one, other))]


def change(
    frozen: bytes,
    question: analyst_pb2.ChangeRequest,
    tallies: Tallies,
    unfinished: Sequence[str] = (),
) -> list[bytes]:
    """Answer `Change` in one message; raise as `changes.change`."""
    return [_data(changes.change(_parsed(frozen), question, tallies, unfinished))]


def check_together(
    frozen: bytes,
    question: analyst_pb2.CrosstabRequest
    | analyst_pb2.CompareGroupsRequest
    | analyst_pb2.FitRequest,
    levels: Sequence[str],
) -> None:
    """Raise `InvalidInput` for a question about records that no record at these levels answers."""
    plan = _parsed(frozen)
    if isinstance(question, analyst_pb2.FitRequest):
        fits.check_fit(plan, question)
        records.check_together(plan, fits.attributes_of(question), levels)
        fits.check_regressors(plan, question, levels)
        return
    if isinstance(question, analyst_pb2.CrosstabRequest):
        joints.check_crosstab(plan, question)
        names = question.attribute, question.other
    else:
        joints.check_groups(plan, question)
        names = question.attribute, question.by
    if not plan.questions_of(names):
        records.check_together(plan, names, levels)
        records.check_countable(plan, names, levels)


def complete(
    frozen: bytes, attributes: Sequence[str], levels: Sequence[str], pages: list[Page]
) -> records.Complete:
    """Return the records of some pages that report all the attributes at these levels."""
    return records.complete(_parsed(frozen), attributes, levels, pages)


def counted(
    attributes: Sequence[str], levels: Sequence[str], pages: list[Page]
) -> Counter[tuple[records.Key, few.Cell]]:
    """Return how many of these records there are of each panel and group."""
    return records.counted(attributes, levels, pages)


def pairs(
    frozen: bytes, attributes: tuple[str, str], levels: Sequence[str], pages: list[Page]
) -> records.Pairs:
    """Return what the records of some pages tell that report both attributes."""
    plan = _parsed(frozen)
    return records.pairs(plan, attributes, records.complete(plan, attributes, levels, pages))


def crosstab(
    frozen: bytes,
    question: analyst_pb2.CrosstabRequest,
    pairs: records.Pairs,
    dropped: int = 0,
) -> bytes:
    """Answer `Crosstab` in one message; raise as `joints.crosstab`.

    `dropped` batches were stored once, and have no rows any more.
    """
    with records.telling_of_dropped(dropped):
        answer = joints.crosstab(_parsed(frozen), question, pairs)
    return _data(records.with_note_of_dropped(answer, dropped))


def crosstab_of_views(
    frozen: bytes, question: analyst_pb2.CrosstabRequest, tallies: Tallies
) -> bytes:
    """Answer `Crosstab` in one message, of attributes that views ask together."""
    return _data(joints.crosstab_of_views(_parsed(frozen), question, tallies))


def groups_of_views(
    frozen: bytes, question: analyst_pb2.CompareGroupsRequest, tallies: Tallies
) -> bytes:
    """Answer `CompareGroups` in one message, of attributes that views ask together."""
    return _data(joints.groups_of_views(_parsed(frozen), question, tallies))


def compare_groups(
    frozen: bytes,
    question: analyst_pb2.CompareGroupsRequest,
    pairs: records.Pairs,
    dropped: int = 0,
) -> bytes:
    """Answer `CompareGroups` in one message; raise as `joints.compare_groups`.

    `dropped` is as of `crosstab`.
    """
    with records.telling_of_dropped(dropped):
        answer = joints.compare_groups(_parsed(frozen), question, pairs)
    return _data(records.with_note_of_dropped(answer, dropped))


def fit(
    frozen: bytes,
    question: analyst_pb2.FitRequest,
    parts: list[records.Complete],
    dropped: int = 0,
) -> bytes:
    """Answer `Fit` in one message; raise as `fits.fit`. `dropped` is as of `crosstab`."""
    with records.telling_of_dropped(dropped):
        answer = fits.fit(_parsed(frozen), question, records.merged(parts))
    return _data(records.with_note_of_dropped(answer, dropped))


def mixed(frozen: bytes, page: Page, levels: Sequence[str]) -> list[bytes]:
    """Return the rows of a page's batches in messages, in an order drawn anew."""
    chunks = rows.chunks(_parsed(frozen), [page], levels, np.random.default_rng())
    return [chunk.SerializeToString() for chunk in chunks]


def targets(frozen: bytes, question: analyst_pb2.SuspicionsRequest, tallies: Tallies) -> list[int]:
    """Return the codes of the values to test: the named ones, or the most frequent ones.

    Raises `InvalidInput` where the attribute's reports cannot be tested.
    """
    plan = _parsed(frozen)
    domain = _domain(plan, question.attribute)
    if question.attribute not in plan.questions:
        views = " or ".join(plan.questions_of([question.attribute]))
        raise InvalidInput(f"{question.attribute!r} is asked in views: test the reports of {views}")
    if queries.repeats_memos(plan, question.attribute, tallies):
        raise InvalidInput(
            "devices repeat their memos over periods, and the tests are for independent "
            "reports: ask for one period"
        )
    if question.targets:
        return [domain.encode(target) for target in question.targets]
    pooled = queries.answered(plan, question.attribute, tallies, "inverse_variance")
    order = np.argsort(-pooled.estimate.value, kind="stable")
    return [int(code) for code in order[:_TARGETS]]


def supports(
    frozen: bytes, attribute: str, levels: Iterable[str], targets: Sequence[int], pages: list[Page]
) -> dict[str, Supports]:
    """Count the supports of the reports in some pages; raise as `rows.supports_by_level`."""
    return rows.supports_by_level(_parsed(frozen), attribute, levels, targets, pages)


def suspicions(
    frozen: bytes, attribute: str, targets: Sequence[int], found: Mapping[str, Supports]
) -> bytes:
    """Answer `Suspicions` in one message, from the supports counted at each level."""
    plan = _parsed(frozen)
    domain = _domain(plan, attribute)
    mechanisms = {name: plan.levels[name].mechanisms[attribute] for name in found}
    few = [name for name, s in found.items() if not suspicion.has_gap(mechanisms[name], s.n)]
    tests = [
        (level, seen.n, test)
        for level, seen in found.items()
        for test in suspicion.suspicions(mechanisms[level], seen)
    ]
    index = roles.index(
        ("level", [level for level, _, _ in tests]), ("test", [test.test for _, _, test in tests])
    )
    columns: dict[str, list[float]] = {
        "statistic": [test.statistic for _, _, test in tests],
        "p_value": [test.p_value for _, _, test in tests],
        "reports": [n for _, n, _ in tests],
    }
    answer = Answer(
        "suspicions",
        plan.survey,
        (Subject(attribute, plan.asked(attribute).title),),
        "test",
        (Table("rows", index, tuple(roles.column(*each, "none") for each in columns.items())),),
        reports=sum(seen.n for seen in found.values()),
        notes=(Note.of(cautions.few_for_test, test="norm_sub_gap", levels=few),) if few else (),
        figures={"targets": [domain.values[target] for target in targets]},
    )
    return _data(answer)


def set_pair_counts(
    frozen: bytes, attribute: str, levels: Iterable[str], pages: list[Page]
) -> dict[str, PairTally]:
    """Count the pairs of members of the reports in some pages; raise as `rows.pairs_by_level`."""
    return rows.pairs_by_level(_parsed(frozen), attribute, levels, pages)


def set_pairs(
    frozen: bytes,
    question: analyst_pb2.PairsRequest,
    tallies: Tallies,
    found: Mapping[str, PairTally],
) -> bytes:
    """Answer `Pairs` in one message, from the pairs counted at each level."""
    return _data(paired.pairs(_parsed(frozen), question, tallies, found))


def check_words(frozen: bytes, question: analyst_pb2.WordsRequest) -> None:
    """Raise `InvalidInput` for a question about words that cannot be asked."""
    worded.check(_parsed(frozen), question)


def word_codes(
    frozen: bytes, attribute: str, selected: Selected, pages: list[Page]
) -> dict[str, bytes]:
    """Return the codes of the selected reports in some pages, by level."""
    return worded.collected(_parsed(frozen), attribute, selected, pages)


def words(
    frozen: bytes,
    question: analyst_pb2.WordsRequest,
    tallies: Tallies,
    parts: list[worded.ByLevel],
    dropped: int = 0,
) -> bytes:
    """Answer `Words` in one message; raise as `worded.words`. `dropped` is as of `crosstab`."""
    with records.telling_of_dropped(dropped):
        answer = worded.words(_parsed(frozen), question, tallies, parts)
    return _data(records.with_note_of_dropped(answer, dropped))


def _data(answer: Answer) -> bytes:
    data: bytes = wire.to_message(answer).SerializeToString()
    return data


def _domain(plan: Plan, attribute: str) -> Categorical:
    domain = plan.asked(attribute).domain
    only = f"the tests are for one of some values: {attribute!r} is answered by {domain}"
    return Categorical.expected(domain, only)
