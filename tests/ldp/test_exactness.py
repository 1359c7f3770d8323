"""What every mechanism must keep, from one table: its exact channel, its sampler, its wire.

What only one mechanism has (its variance, its calibration, its own refusals) is tested in the
file of its name.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from ldp import (
    HRR,
    KRR,
    LOLOHA,
    RAPPOR,
    ChannelTable,
    Coins,
    CountMeanSketch,
    DBitFlip,
    GaussianMechanism,
    HadamardCountMeanSketch,
    HadamardResponse,
    HybridMechanism,
    InvalidInput,
    KRRChain,
    LaplaceMechanism,
    LocalHashing,
    Mechanism,
    OneBitMean,
    OrderedExponential,
    PiecewiseMechanism,
    ProjectiveGeometry,
    SquareWave,
    SubsetSelection,
    SummingHistogram,
    Tally,
    UnaryChain,
    UnaryEncoding,
    build,
    thresholding_histogram,
)
from ldp.core.exact import ONE
from ldp.core.mechanism import Categorical, FrequencyOracle
from ldp.mechanisms import IN_PLANS
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.tools.finite_field import next_prime
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (2, 3, 4, 5, 8, 16)


@dataclass(frozen=True)
class Case:
    """How to make a mechanism of k inputs, and what its channel is expected to be like.

    Sizes beyond `largest` have too many codes to enumerate; their worst ratio must be that of
    `largest`. `spends` is what part of epsilon the channel uses at least, and is below 0.999
    only where the mechanism cannot help it.
    """

    make: Callable[[int, float], Mechanism]
    largest: int = 16
    spends: float | None = 0.999


def krr_table(k: int, epsilon: float) -> ChannelTable:
    e = math.exp(epsilon)
    rows = [[(e if x == y else 1) / (e + k - 1) for y in range(k)] for x in range(k)]
    return ChannelTable.from_rows(epsilon, rows)


def loloha(k: int, epsilon: float) -> LOLOHA:
    chain = KRRChain.calibrate(2, epsilon, 2 * epsilon)  # few buckets and a small prime:
    prime = next_prime(max(k, 3))  # a channel that can be enumerated
    return LOLOHA(k, epsilon, 2, prime, chain.permanent, chain.instantaneous)


CASES = {
    "cms": Case(lambda k, e: CountMeanSketch(k, e, hashes=3, buckets=4)),
    "dbitflip": Case(lambda k, e: DBitFlip(k, e, 2)),
    # Not pure: a code can rule a number out. test_gaussian.py enumerates its delta.
    "gaussian": Case(lambda k, e: GaussianMechanism(e, ONE // 100, k - 1), spends=None),
    "hadamard": Case(HadamardResponse),
    "hashing": Case(lambda k, e: LocalHashing(k, e, buckets=4, prime=next_prime(max(k, 5)))),
    "hcms": Case(lambda k, e: HadamardCountMeanSketch(k, e, hashes=3, buckets=4)),
    "hrr": Case(HRR),
    "hybrid": Case(lambda k, e: HybridMechanism(e, k - 1, onebit=ONE // 3)),
    "krr": Case(KRR),
    "krr_chain": Case(lambda k, e: KRRChain.calibrate(k, e, 2 * e)),
    "laplace": Case(lambda k, e: LaplaceMechanism(e, k - 1)),
    "loloha": Case(loloha),
    "onebit": Case(lambda k, e: OneBitMean(e)),  # two inputs, whatever k
    "ordered": Case(OrderedExponential),
    "piecewise": Case(lambda k, e: PiecewiseMechanism(e, k - 1)),
    "projective": Case(ProjectiveGeometry),
    # k filters of one bit, in one cohort. Filters, and categories below, differ in two
    # independent bits or levels, of which there are no more in a larger domain.
    "rappor": Case(lambda k, e: RAPPOR.calibrate(e, 2 * e, bits=k, hashes=1, cohorts=1), largest=8),
    "she": Case(lambda k, e: SummingHistogram.on_grid(k, e, 1, 1), largest=5),
    "square_wave": Case(lambda k, e: SquareWave(e, k - 1)),
    "subset": Case(SubsetSelection),
    "table": Case(krr_table),
    # Thresholding throws noise away that was paid for: (2a-1)(2b-1) < (ab)**2.
    "the": Case(thresholding_histogram, largest=8, spends=0.5),
    "unary": Case(UnaryEncoding, largest=10),
    "unary_chain": Case(lambda k, e: UnaryChain.l_osue(k, e, 2 * e), largest=8),
}
# Constructors whose reports take another path through the code, or have another form.
VARIANTS: dict[str, Mechanism] = {
    "another prime": LocalHashing(5, 1.0, prime=7),
    "blocks": HadamardResponse(9, 2.0),
    "indices": SubsetSelection(17, 2.5),
    "extension field": ProjectiveGeometry(20, 2.0, order=4, dimension=3),
    "prime field": ProjectiveGeometry(12, 1.0, order=3, dimension=3),
    "rectangular table": ChannelTable.from_rows(
        1.5, [[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.2, 0.1, 0.4, 0.3]]
    ),
    "two hashes": RAPPOR.calibrate(1.0, 2.0, bits=6, hashes=2, cohorts=1),
    "all asked": DBitFlip(5, 1.0, 5),
    "one asked": DBitFlip(4, 1.0, 1),
    "symmetric": UnaryEncoding.symmetric(5, 0.5),
    "asymmetric chain": UnaryChain.l_oue(3, 1.0, 2.0),
    "finer grid": SummingHistogram.on_grid(3, 1.0, 2, 1),
}
SAMPLED = {name: case.make(4, 1.0) for name, case in CASES.items()} | VARIANTS
WIRED = {name: case.make(13, 1.0) for name, case in CASES.items()} | VARIANTS
PURE = [name for name in WIRED if name != "gaussian"]

sampled = pytest.mark.parametrize("mechanism", SAMPLED.values(), ids=SAMPLED)
wired = pytest.mark.parametrize("mechanism", WIRED.values(), ids=WIRED)


def inputs(mechanism: Mechanism) -> list[Any]:
    """Return one value for each row of the channel, or more."""
    if isinstance(mechanism, RAPPOR):
        return [f"string {i}" for i in range(40)]
    if isinstance(mechanism, MeanMechanism):
        return list(np.linspace(-1, 1, mechanism.steps + 1))
    return list(range(mechanism.parameters))


def row_of(mechanism: Mechanism, value: Any) -> tuple[Fraction, ...]:
    """Return the channel's row from one of `inputs`."""
    if isinstance(mechanism, RAPPOR):
        filters = list(combinations(range(mechanism.bits), mechanism.hashes))
        return mechanism.channel().rows[filters.index(mechanism.positions(0, value))]
    return mechanism.channel().rows[inputs(mechanism).index(value)]


def output_of(mechanism: Mechanism, code: Any) -> Hashable:
    """Return the name that a code has in its mechanism's channel."""
    match mechanism:
        case UnaryEncoding() | UnaryChain():
            return int.from_bytes(code.tobytes(), "little")
        case RAPPOR():
            return int.from_bytes(code[2:].tobytes(), "little")
        case CountMeanSketch():
            return int(code["function"]), int.from_bytes(code["bits"].tobytes(), "little")
        case HadamardCountMeanSketch():
            return divmod(int(code), mechanism._outputs)
        case SubsetSelection() if mechanism._masked:
            return tuple(np.flatnonzero(np.unpackbits(code, bitorder="little")).tolist())
        case SubsetSelection() | DBitFlip() | SummingHistogram():
            return tuple(code.tolist())
    return int(code)


def counted(mechanism: Mechanism, codes: Any) -> np.ndarray:
    """Return how often each output of the channel came up."""
    size = mechanism.code_bytes
    data = np.frombuffer(mechanism.encode(codes), dtype=np.uint8).reshape(len(codes), size)
    width = next(width for width in (1, 2, 4, 8) if size <= width)
    words = np.zeros((len(codes), width), dtype=np.uint8)
    words[:, :size] = data
    _, first, counts = np.unique(words.view(f"<u{width}"), return_index=True, return_counts=True)
    index = {output: i for i, output in enumerate(mechanism.channel().outputs)}
    seen = np.zeros(len(index))
    for i, count in zip(first, counts, strict=True):
        (code,) = mechanism.decode(data[i].tobytes(), 1)
        seen[index[output_of(mechanism, code)]] += count
    return seen


def chi_square(seen: np.ndarray, row: tuple[Fraction, ...]) -> float:
    """Return the p-value; outputs too rare for the approximation are counted together."""
    expected = seen.sum() * np.array(row, dtype=float)
    assert not seen[expected == 0].any()
    rare = expected < 10
    pooled = [np.append(x[~rare], x[rare].sum()) for x in (seen, expected)]
    observed, expected = (x[pooled[1] > 1e-3] for x in pooled)
    assert expected.size >= 2  # one cell alone would always fit
    return float(chisquare(observed, expected, sum_check=False).pvalue)


def test_no_mechanism_is_missing() -> None:
    # Those that keep a policy have a table of their own, in test_policy_mechanisms.py.
    one_epsilon = {name for name in IN_PLANS if not name.startswith("policy_")}
    assert set(CASES) == one_epsilon | {"gaussian", "the"}
    for name, case in CASES.items():
        assert case.make(4, 1.0).name == {"the": "unary"}.get(name, name)


# --- the channel ---------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", CASES)
def test_the_worst_log_ratio_is_epsilon_and_never_more(name: str, epsilon: float) -> None:
    case = CASES[name]
    for k in SIZES:
        mechanism = case.make(k, epsilon)
        channel = case.make(min(k, case.largest), epsilon).channel()  # its rows sum to one
        assert channel.epsilon == mechanism.realised_epsilon
        if case.spends is None:
            assert channel.epsilon == math.inf
        else:
            assert channel.satisfies(epsilon)
            assert case.spends * epsilon <= channel.epsilon <= epsilon


@pytest.mark.parametrize("name", PURE)
def test_integers_that_exceed_epsilon_are_refused(name: str) -> None:
    mechanism = WIRED[name]
    with pytest.raises(InvalidInput, match=r"the integers give epsilon .*, more than the"):
        build(mechanism.name, 0.999 * mechanism.realised_epsilon, mechanism.integers)


# --- the sampler ---------------------------------------------------------------------------


@pytest.mark.slow
@sampled
def test_the_samplers_draw_from_the_channel(mechanism: Mechanism, coins: SeededCoins) -> None:
    check_samplers(mechanism, -2, coins)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "epsilon", "place"), [(2, 0.1, 0), (5, 4.0, -1)])
@pytest.mark.parametrize("name", CASES)
def test_the_samplers_draw_from_the_channel_at_the_ends_of_other_domains(
    name: str, k: int, epsilon: float, place: int, coins: SeededCoins
) -> None:
    check_samplers(CASES[name].make(k, epsilon), place, coins)


def check_samplers(mechanism: Mechanism, place: int, coins: SeededCoins) -> None:
    value = inputs(mechanism)[place]
    row = row_of(mechanism, value)
    codes = mechanism.randomize_many([value] * 1_000_000, coins)
    assert chi_square(counted(mechanism, codes), row) > 1e-4
    single = [mechanism.randomize(value, coins) for _ in range(3000)]
    assert chi_square(counted(mechanism, single), row) > 1e-4


# --- the wire ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, m in WIRED.items() if isinstance(m, FrequencyOracle)])
def test_the_evidence_of_the_codes_sums_to_what_a_tally_supports(name: str) -> None:
    oracle = WIRED[name]
    assert isinstance(oracle, FrequencyOracle)
    codes = oracle.randomize_many(np.arange(oracle.k).repeat(20), Coins())
    supported = [int(oracle.evidence(codes, value).sum()) for value in range(oracle.k)]
    assert supported == oracle.supports(oracle.tally(codes)).tolist()


@wired
def test_a_report_has_one_type_and_size_for_every_value(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    values = inputs(mechanism)
    kinds = set()
    for value in values:
        code = mechanism.randomize(value, coins)
        kinds.add((type(code), np.shape(code)))
        assert len(mechanism.encode([code])) == mechanism.code_bytes
        assert mechanism.encode_one(code) == mechanism.encode([code])
    assert len(kinds) == 1
    codes = mechanism.randomize_many(values, coins)
    assert (codes.dtype, codes.shape) == (
        mechanism.code_dtype,
        (len(values), *mechanism.code_shape),
    )


@wired
def test_decoding_returns_what_was_encoded(mechanism: Mechanism) -> None:
    values = inputs(mechanism)
    codes = mechanism.randomize_many(values, Coins())
    data = mechanism.encode(codes)
    assert len(data) == len(values) * mechanism.code_bytes
    assert np.array_equal(mechanism.decode(data, len(values)), codes)


@wired
def test_missing_and_trailing_bytes_are_refused(mechanism: Mechanism, coins: SeededCoins) -> None:
    data = mechanism.encode(mechanism.randomize_many(inputs(mechanism)[:2], coins))
    for wrong in (b"", data[:-1], data + b"\0"):
        reason = f"2 {mechanism.name} codes take {len(data)} bytes, got {len(wrong)}"
        with pytest.raises(InvalidInput, match=reason):
            mechanism.decode(wrong, 2)


@wired
@settings(max_examples=50)
@given(data=st.data())
def test_any_bytes_decode_or_are_refused(mechanism: Mechanism, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 3))
    size = n * mechanism.code_bytes
    received = data.draw(st.binary(min_size=size, max_size=size) | st.binary(max_size=9))
    try:
        codes = mechanism.decode(received, n)
    except InvalidInput as refusal:
        assert str(refusal)
    else:
        assert mechanism.encode(codes) == received
        assert mechanism.tally(codes).n == n


@wired
def test_tallies_merge_in_any_order(mechanism: Mechanism, coins: SeededCoins) -> None:
    codes = mechanism.randomize_many(inputs(mechanism) * 20, coins)
    a, b, c = (mechanism.tally(part) for part in np.split(codes, [7, 20]))
    assert (a + b) + c == a + (b + c) == c + b + a == mechanism.tally(codes)
    assert a.counts.size == mechanism.tally_size
    assert mechanism.tally(codes[:0]) == Tally.empty(mechanism.tally_size)


@pytest.mark.parametrize("name", PURE)
def test_a_plan_rebuilds_the_mechanism(name: str) -> None:
    mechanism = WIRED[name]
    assert build(mechanism.name, mechanism.epsilon, mechanism.integers) == mechanism


# --- what is refused -----------------------------------------------------------------------

NO_CATEGORIES = (-1, 1 << 70, 10**400, 1j, 99, 1.0, math.nan, True, "1", None)
NO_NUMBERS = (1.5, -1.0000001, 10**400, 1j, np.complex128(1j), math.nan, math.inf, True, "0", None)
NO_STRINGS = (1, None, b"bytes", "\ud800", 1.5)


@wired
def test_a_value_outside_the_domain_is_refused(mechanism: Mechanism, coins: SeededCoins) -> None:
    if isinstance(mechanism, Categorical):
        bad, reason = NO_CATEGORIES, f"{mechanism.name}: (a )?categor(y|ies) "
    elif isinstance(mechanism, MeanMechanism):
        bad, reason = NO_NUMBERS, rf"{mechanism.name}: (a )?numbers? (must lie|is|are) "
    else:
        bad, reason = NO_STRINGS, "a string is expected|UTF-8 cannot write"
    for value in bad:
        with pytest.raises(InvalidInput, match=reason):
            mechanism.randomize(value, coins)
        with pytest.raises(InvalidInput, match=reason):
            mechanism.randomize_many([value], coins)


@wired
def test_values_that_are_no_list_are_refused(mechanism: Mechanism, coins: SeededCoins) -> None:
    value = inputs(mechanism)[0]
    for values in (value, [[value]], [[value], [value, value]]):
        with pytest.raises(InvalidInput, match=r"1-d|a string is expected"):
            mechanism.randomize_many(values, coins)


@pytest.mark.parametrize("name", CASES)
def test_an_epsilon_out_of_range_is_refused(name: str) -> None:
    mechanism = WIRED[name]
    for epsilon in (0, 0.0, -3.0, math.nan, math.inf, 33.0, 10**400, -(10**400), "1", True, None):
        with pytest.raises(InvalidInput, match="epsilon must be"):
            mechanism.from_integers(epsilon, mechanism.integers)


@pytest.mark.parametrize("name", [n for n in CASES if isinstance(WIRED[n], Categorical)])
def test_a_domain_out_of_range_is_refused(name: str) -> None:
    mechanism = WIRED[name]
    for k in (1, 1 << 33):
        with pytest.raises(InvalidInput, match=rf"k must lie in 2\.\.\d+, got {k}"):
            mechanism.from_integers(1.0, mechanism.integers | {"k": (k,)})
