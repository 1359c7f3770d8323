"""An audit of a whole collection: canaries whose answers a coin chose, and guesses of the coins.

Each canary is a client of the SDK with a coin of its own, which answers one of two records. The
reports go through a server, and come back as `ExportRows` has them. From each row, and the
mechanisms that the plan promises, the coin is guessed. Reports that keep their epsilon make many
right guesses unlikely, whatever device, wire and server do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.pool import Pool
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from hearsay import Analyst
from hearsay.asking.rows import AttributeRows, decode
from hearsay.plans.kinds import Binned, ByKind, Categorical, Numeric, SetOf, Strings
from hearsay.plans.plan import Level, Plan
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.demo.devices import Answer, Respondent, deliver
from ldp import Coins, Mechanism, PrefixHashing
from ldp.assurance.audit import MAX_CELLS
from ldp.core.estimator import MAX_MATRIX
from ldp.core.mechanism import Codes
from ldp.errors import InvalidInput, ServerFailed

if TYPE_CHECKING:
    from dpsgd.auditing import OneRunAudit

_CERTAIN = 50.0
"""The log-ratio of a report that only one of the answers can give."""

_Two = tuple[Answer, Answer]

Rows = Mapping[str, AttributeRows]
"""Reports by question, as `hearsay.asking.rows.decode` returns them."""


@dataclass(frozen=True)
class CanaryAudit:
    """The audit of one question's reports at a level, or (`question` None) of whole records."""

    level: str
    question: str | None
    result: "OneRunAudit"


def audit_collection(
    plan: bytes,
    parsed: Plan,
    address: str,
    pool: Pool,
    canaries: int,
    confidence: float,
    delivered: Callable[[int], None],
) -> list[CanaryAudit]:
    """Let canaries answer at every level of a survey that nobody else answers; guess their coins.

    `plan` is the registered survey's plan, `parsed` what it says; `canaries` answer at each level,
    and `delivered` is told how many more have. All lower bounds hold together with probability
    `confidence`.
    Left out are attributes of which no two answers are known that protect each other. Raises
    `InvalidInput` where that leaves none, `Unreachable` where a device could not deliver, and
    `ServerFailed` where the server exports other reports than the devices sent.
    """
    from dpsgd.auditing import audit_by_likelihood

    pairs = {
        name: pair for name in parsed.attributes if (pair := _two_answers(parsed, name)) is not None
    }
    asked = [name for name in parsed.questions if all(p in pairs for p in parsed.parts(name))]
    if not asked:
        raise InvalidInput("no attribute of the survey has two answers that canaries could give")
    coins = Coins().bernoulli_many(1 << 63, canaries * len(parsed.levels))
    levels = np.repeat(list(parsed.levels), canaries)
    people = [
        Respondent(i, str(level), {name: pair[coin] for name, pair in pairs.items()}, {})
        for i, (level, coin) in enumerate(zip(levels, coins.astype(int), strict=True))
    ]
    sent: list[collector_pb2.Batch] = []
    places = []
    for part in deliver(pool, address, plan, people, None):
        for each in filter(None, part):
            sent.append(collector_pb2.Batch.FromString(each.batch))
            places.append(each.respondent.number)
        delivered(len(part))
    own = _joined(parsed, [decode(parsed, _as_chunk(batch)) for batch in sent])
    with Analyst(address) as analyst:
        chunks = [chunk for chunk in analyst.chunks(parsed.survey) if chunk.rows]
    exported = _joined(parsed, [decode(parsed, chunk) for chunk in chunks])
    order, theirs = _sorted(own), _sorted(exported)
    if [key for key, _ in order] != [key for key, _ in theirs]:
        raise ServerFailed("the server exports other reports than the canaries' devices sent")
    # Equal rows are guessed alike, so that it is the same which of them is whose.
    owners = np.empty(len(order), dtype=np.intp)
    owners[[i for _, i in theirs]] = [places[i] for _, i in order]

    tests: list[tuple[str, str | None, float, NDArray[np.float64], NDArray[np.bool_]]] = []
    for position, level in enumerate(parsed.levels.values()):
        here = levels[owners] == level.name
        total = np.zeros(int(here.sum()))
        for name in asked:
            ratios = _log_ratios(parsed, level, name, pairs, exported[name], here, position)
            total += ratios
            tests.append((level.name, name, level.mechanisms[name].epsilon, ratios, here))
        if len(asked) > 1:
            tests.append((level.name, None, level.epsilon, total, here))
    each_confidence = 1 - (1 - confidence) / len(tests)  # so that all hold together (Bonferroni)
    return [
        CanaryAudit(
            level,
            question,
            audit_by_likelihood(
                ratios, coins[owners[here]], claimed=epsilon, confidence=each_confidence
            ),
        )
        for level, question, epsilon, ratios, here in tests
    ]


def _two_answers(plan: Plan, name: str) -> _Two | None:
    """Return two answers to an attribute that are far apart, and each protected from the other."""
    domain = plan.attributes[name].domain
    return _TWO[domain](plan, name, domain)


def _two_numbers(plan: Plan, name: str, domain: Numeric) -> _Two | None:
    return None if domain.sensitive else (domain.low, domain.high)


def _two_bins(plan: Plan, name: str, domain: Binned) -> _Two:
    return domain.low, domain.high


def _two_sets(plan: Plan, name: str, domain: SetOf) -> _Two:
    items = domain.labels
    return items[: domain.most], items[-domain.most :]


def _two_words(plan: Plan, name: str, domain: Strings) -> _Two:
    one, other = domain.alphabet[0], domain.alphabet[1]
    return one * domain.longest, other * domain.longest


def _none_known(plan: Plan, name: str, domain: Any) -> None:
    return None


def _two_values(plan: Plan, name: str, domain: Categorical) -> _Two | None:
    values = domain.values
    protected = np.ones((len(values), len(values)), dtype=np.bool_)
    for level in plan.levels.values():
        mechanism = level.mechanisms.get(name)  # None where it is only asked in views
        pairs = None if mechanism is None else mechanism.protected_pairs()
        if pairs is not None:
            protected &= pairs & pairs.T
    np.fill_diagonal(protected, False)
    found = np.argwhere(protected)
    if not found.size:
        return None
    first, second = max(found.tolist(), key=lambda both: both[1] - both[0])
    return values[first], values[second]


_TWO: ByKind[Callable[[Plan, str, Any], _Two | None]] = ByKind(
    category=_two_values,
    number=_two_numbers,
    bins=_two_bins,
    set=_two_sets,
    ratings=_none_known,
    words=_two_words,
    grid=_none_known,
)


def _log_ratios(
    plan: Plan,
    level: Level,
    question: str,
    pairs: Mapping[str, tuple[Answer, Answer]],
    rows: AttributeRows,
    here: NDArray[np.bool_],
    position: int,
) -> NDArray[np.float64]:
    """Return ln Pr[report | second answer] - ln Pr[report | first], 0 of rows without a report."""
    mechanism = level.mechanisms[question]
    inputs = []
    for coin in (0, 1):
        values = [
            plan.attributes[part].domain.encode(pairs[part][coin]) for part in plan.parts(question)
        ]
        view = plan.views.get(question)
        inputs.append(values[0] if view is None else view.category(cast("list[int]", values)))
        if isinstance(mechanism, PrefixHashing):
            inputs[-1] = mechanism.spelling.number(cast("str", inputs[-1]))
    found = np.zeros(len(here))
    there = here & (rows.levels == position)
    codes = rows.codes[there]
    if codes.dtype == object:
        codes = mechanism.decode(b"".join(map(bytes, codes)), len(codes))
    else:
        codes = codes.astype(mechanism.code_dtype)
    found[there] = _log_ratio(mechanism, inputs, codes)
    return found[here]


def _log_ratio(mechanism: Mechanism, inputs: Sequence[Any], codes: Codes) -> NDArray[np.float64]:
    """Return the log-likelihood ratio of codes: exact where the channel is two-valued or kept.

    Elsewhere the difference of `evidence`, which orders codes well enough to guess by.
    """
    rows = None if mechanism.two_valued else _two_rows(mechanism, inputs)
    if rows is None:
        without, with_it = (mechanism.evidence(codes, value) for value in inputs)
        return np.asarray(mechanism.realised_epsilon * (with_it - without), dtype=np.float64)
    outputs, likelihoods = rows
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = np.log(likelihoods)
        ratios = np.clip(np.nan_to_num(second - first), -_CERTAIN, _CERTAIN)
    found = dict(zip(outputs, ratios.tolist(), strict=True))
    return np.array([found[tuple(np.atleast_1d(code).tolist())] for code in codes])


def _two_rows(
    mechanism: Mechanism, inputs: Sequence[Any]
) -> tuple[list[tuple[int, ...]], NDArray[np.float64]] | None:
    """Return the codes and their probabilities for two inputs, (2, codes); None if not kept."""
    if not all(isinstance(each, int | float) for each in inputs):
        return None
    # Of numbers, the first and the last row are the ends of the range.
    places = [each if isinstance(each, int) else -int(each > 0) for each in inputs]
    size = max(mechanism.tally_size, mechanism.parameters)
    if mechanism.parameters * mechanism.tally_size <= MAX_MATRIX:
        matrix = mechanism.matrix()
        if matrix is not None:
            return [(code,) for code in range(matrix.shape[1])], matrix[places]
    if size.bit_length() + 8 * mechanism.code_bytes > MAX_CELLS.bit_length():
        return None
    channel = mechanism.channel()
    outputs = [tuple(np.atleast_1d(np.array(code)).tolist()) for code in channel.outputs]
    return outputs, np.array([channel.rows[place] for place in places], dtype=np.float64)


def _as_chunk(batch: collector_pb2.Batch) -> analyst_pb2.ExportRowsResponse:
    return analyst_pb2.ExportRowsResponse(rows=batch.rows, columns=batch.columns)


def _joined(plan: Plan, parts: Sequence[Rows]) -> dict[str, AttributeRows]:
    if not parts:
        raise ServerFailed("the server exports no reports")
    return {name: AttributeRows.joined([part[name] for part in parts]) for name in plan.questions}


def _sorted(rows: Rows) -> list[tuple[str, int]]:
    """Return each row's reports as text, in order, with the row's number."""
    columns = [
        zip(each.levels.tolist(), map(_text, each.codes), strict=True) for each in rows.values()
    ]
    return sorted((repr(row), i) for i, row in enumerate(zip(*columns, strict=True)))


def _text(code: Any) -> str:
    return code.tobytes().hex() if isinstance(code, np.void) else str(code)
