"""What every mechanism must keep, from one table: its exact channel, its sampler, its wire.

What only one mechanism has (its variance, its calibration, its own refusals) is tested in the
file of its name.
"""

import math
from collections.abc import Callable, Hashable
from fractions import Fraction
from itertools import combinations, islice, product
from typing import Any

import numpy as np
import pytest
from every_mechanism import CASES, POLICIES, SAMPLED, SIZES, WIRED
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from ldp import (
    RAPPOR,
    Coins,
    CountMeanSketch,
    DBitFlip,
    HadamardCountMeanSketch,
    InvalidInput,
    Mechanism,
    PolicySubsets,
    PolicyUnary,
    PrefixHashing,
    SetSelection,
    SubsetSelection,
    SummingHistogram,
    Tally,
    UnaryChain,
    UnaryEncoding,
    build,
)
from ldp.core.exact import ONE
from ldp.core.longitudinal import Longitudinal
from ldp.core.mechanism import Categorical, FrequencyOracle, Supporting
from ldp.mechanisms import IN_PLANS, PolicyMechanism, SetMechanism
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
ALL_PLANS = [name for name in WIRED if name != "gaussian"]

sampled = pytest.mark.parametrize("mechanism", SAMPLED.values(), ids=SAMPLED)
wired = pytest.mark.parametrize("mechanism", WIRED.values(), ids=WIRED)


def inputs(mechanism: Mechanism) -> list[Any]:
    """Return one value for each row of the channel, or more."""
    if isinstance(mechanism, RAPPOR):
        return [f"string {i}" for i in range(40)]
    if isinstance(mechanism, MeanMechanism):
        return list(np.linspace(-1, 1, mechanism.steps + 1))
    if isinstance(mechanism, SetMechanism):
        return list(islice(mechanism.sets(), 1, 300))
    if isinstance(mechanism, PrefixHashing):
        return list(mechanism.words())
    return list(range(mechanism.parameters))


def row_of(mechanism: Mechanism, value: Any) -> tuple[Fraction, ...]:
    """Return the channel's row from one of `inputs`."""
    if isinstance(mechanism, RAPPOR):
        filters = list(combinations(range(mechanism.bits), mechanism.hashes))
        return mechanism.channel().rows[filters.index(mechanism.positions(0, value))]
    if isinstance(mechanism, SetMechanism):
        return mechanism.channel().rows[list(mechanism.sets()).index(value)]
    return mechanism.channel().rows[inputs(mechanism).index(value)]


def output_of(mechanism: Mechanism, code: Any) -> Hashable:
    """Return the name that a code has in its mechanism's channel."""
    match mechanism:
        case UnaryEncoding() | UnaryChain() | PolicyUnary():
            return int.from_bytes(code.tobytes(), "little")
        case RAPPOR():
            return int.from_bytes(code[2:].tobytes(), "little")
        case PrefixHashing():
            return tuple(code.tolist())
        case CountMeanSketch():
            return int(code["function"]), int.from_bytes(code["bits"].tobytes(), "little")
        case HadamardCountMeanSketch():
            return divmod(int(code), mechanism._outputs)
        case SetSelection() if mechanism.size == 1:
            return (int(code),)
        case SubsetSelection() | SetSelection() if mechanism._masked:
            return members(code)
        case PolicySubsets():
            return int(code[0]), members(code[1:])
        case SubsetSelection() | SetSelection() | DBitFlip() | SummingHistogram():
            return tuple(code.tolist())
    return int(code)


def members(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist())


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
    policies = {mechanism.name for mechanism in POLICIES.values()}
    assert set(CASES) | policies == set(IN_PLANS) | {"gaussian", "the"}
    for name, case in CASES.items():
        assert case.make(4, 1.0).name == {"the": "unary"}.get(name, name)


@pytest.mark.parametrize(
    "mechanism", [each for each in WIRED.values() if isinstance(each, FrequencyOracle)], ids=repr
)
def test_an_oracle_says_how_many_categories_a_code_names(mechanism: FrequencyOracle) -> None:
    codes = mechanism.randomize_many(np.arange(400) % mechanism.k, SeededCoins(5))
    codes = np.unique(codes, axis=0)
    supported = [mechanism.evidence(codes, value) for value in range(mechanism.k)]
    supports = {tuple(row) for row in np.transpose(supported).tolist()}
    sizes = {sum(support) for support in supports}
    if mechanism.named is None:
        assert sizes != {1}
        return
    least, most = mechanism.named
    assert len(supports) == len(codes)  # whoever reads the code reads the categories, no more
    assert least <= min(sizes) and max(sizes) <= most and (least < most) == (len(sizes) > 1)


# --- the channel ---------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", CASES)
def test_the_worst_log_ratio_is_epsilon_and_never_more(name: str, epsilon: float) -> None:
    case = CASES[name]
    for k in SIZES:
        mechanism = case.make(k, epsilon)
        if k <= case.largest:
            channel = mechanism.channel()  # its rows sum to one
        assert channel.epsilon == mechanism.realised_epsilon
        if case.spends is None:
            assert channel.epsilon == math.inf
        else:
            assert channel.satisfies(epsilon)
            assert case.spends * epsilon <= channel.epsilon <= epsilon


@pytest.mark.parametrize("name", [name for name in ALL_PLANS if name not in POLICIES])
def test_integers_that_exceed_epsilon_are_refused(name: str) -> None:
    mechanism = WIRED[name]
    with pytest.raises(InvalidInput, match=r"the integers give epsilon .*, more than the"):
        build(mechanism.name, math.nextafter(mechanism.realised_epsilon, 0), mechanism.integers)


# --- the sampler ---------------------------------------------------------------------------


@pytest.mark.slow
@sampled
def test_the_samplers_draw_from_the_channel(mechanism: Mechanism, coins: SeededCoins) -> None:
    values = inputs(mechanism)
    places = [-2]
    if isinstance(mechanism, PolicyMechanism):  # the last of every class that is not sure
        rows = mechanism.channel().rows
        places = [each[-1] for each in mechanism.promise.members if max(rows[each[-1]]) < 0.999]
    assert places
    for place in places:
        check_samplers(mechanism, values[place], coins)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "epsilon", "place"), [(2, 0.1, 0), (5, 4.0, -1)])
@pytest.mark.parametrize("name", CASES)
def test_the_samplers_draw_from_the_channel_at_the_ends_of_other_domains(
    name: str, k: int, epsilon: float, place: int, coins: SeededCoins
) -> None:
    mechanism = CASES[name].make(k, epsilon)
    check_samplers(mechanism, inputs(mechanism)[place], coins)


def check_samplers(mechanism: Mechanism, value: Any, coins: SeededCoins) -> None:
    row = row_of(mechanism, value)
    many: Any = [value] * 1_000_000
    if isinstance(mechanism, SetMechanism):
        many = np.tile(np.array(value), (1_000_000, 1))
    codes = mechanism.randomize_many(many, coins)
    assert chi_square(counted(mechanism, codes), row) > 1e-4
    single = [mechanism.randomize(value, coins) for _ in range(3000)]
    assert chi_square(counted(mechanism, single), row) > 1e-4


# --- the wire ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, m in WIRED.items() if isinstance(m, Supporting)])
def test_the_evidence_of_the_codes_sums_to_what_a_tally_supports(name: str) -> None:
    oracle = WIRED[name]
    assert isinstance(oracle, FrequencyOracle | SetMechanism)
    codes = oracle.randomize_many(inputs(oracle) * 20, Coins())
    single = [
        (item,) if isinstance(oracle, SetMechanism) else item for item in range(oracle.parameters)
    ]
    supported = [int(oracle.evidence(codes, value).sum()) for value in single]
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


@pytest.mark.parametrize(
    "name", [name for name, m in WIRED.items() if m.code_shape == () and m.code_dtype.kind == "u"]
)
def test_a_code_beyond_the_last_is_refused(name: str) -> None:
    mechanism = WIRED[name]
    beyond = len(mechanism.channel().outputs)
    if beyond == 256**mechanism.code_bytes:
        pytest.skip("every code has a meaning")
    with pytest.raises(InvalidInput, match=f"code must be below {beyond}, got {beyond}"):
        mechanism.decode(beyond.to_bytes(mechanism.code_bytes, "little"), 1)


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


@pytest.mark.parametrize("name", ALL_PLANS)
def test_a_plan_rebuilds_the_mechanism_from_integers_of_64_bits(name: str) -> None:
    mechanism = WIRED[name]
    assert build(mechanism.name, mechanism.epsilon, mechanism.integers) == mechanism
    assert all(0 <= i < ONE for values in mechanism.integers.values() for i in values)


# --- what is refused -----------------------------------------------------------------------

NO_CATEGORIES = (-1, 1 << 70, 10**400, 1j, 100, 1.0, math.nan, True, "1", None)
NO_NUMBERS = (1.5, -1.0000001, 10**400, 1j, np.complex128(1j), math.nan, math.inf, True, "0", None)
NO_SETS = (1, "0", b"0", {0: 1}, (0, 0), (-1,), (100,), (True,), (0.0,), ("0",), None, range(9))
NO_WORDS = (0, -1, 1 << 70, 10**400, 1j, 31, 32, 1.0, math.nan, True, "a", None)
NO_STRINGS = (1, None, b"bytes", "\ud800", 1.5)


@wired
def test_a_value_outside_the_domain_is_refused(mechanism: Mechanism, coins: SeededCoins) -> None:
    if isinstance(mechanism, Categorical):
        bad, reason = NO_CATEGORIES, f"{mechanism.name}: (a )?categor(y|ies) "
    elif isinstance(mechanism, MeanMechanism):
        bad, reason = NO_NUMBERS, rf"{mechanism.name}: (a )?numbers? (must lie|is|are) "
    elif isinstance(mechanism, SetMechanism):
        bad, reason = NO_SETS, f"{mechanism.name}: (a set|an item|the items) "
    elif isinstance(mechanism, PrefixHashing):
        bad, reason = NO_WORDS, f"{mechanism.name}: (a word|words) "
    else:
        bad, reason = NO_STRINGS, "a string is expected|UTF-8 cannot write"
    calls: list[Callable[[Any], Any]] = [
        lambda value: mechanism.randomize(value, coins),
        lambda value: mechanism.randomize_many([value], coins),
    ]
    if isinstance(mechanism, Longitudinal):
        device = mechanism.enroll(coins)
        calls.append(lambda value: mechanism.memo_key(device, value))
    for call, value in product(calls, bad):
        with pytest.raises(InvalidInput, match=reason):
            call(value)


@pytest.mark.parametrize("name", [n for n, m in WIRED.items() if isinstance(m, Longitudinal)])
def test_a_memo_survives_as_bytes(name: str, coins: SeededCoins) -> None:
    mechanism = WIRED[name]
    assert isinstance(mechanism, Longitudinal)
    device = mechanism.enroll(coins)
    for value in inputs(mechanism):
        memo = mechanism.memoize(device, value, coins)
        stored = mechanism.encode([memo])
        assert len(stored) == mechanism.code_bytes
        assert np.array_equal(mechanism.decode(stored, 1)[0], memo)
        assert len(mechanism.encode([mechanism.report(memo, coins)])) == mechanism.code_bytes


@wired
def test_values_that_are_no_list_are_refused(mechanism: Mechanism, coins: SeededCoins) -> None:
    value = inputs(mechanism)[0]
    for values in (value, [[value]], [[value], [value, value]]):
        with pytest.raises(InvalidInput, match=r"1-d|a string is expected|a set is|an item is"):
            mechanism.randomize_many(values, coins)


@pytest.mark.parametrize("name", CASES)
def test_an_epsilon_out_of_range_is_refused(name: str) -> None:
    mechanism = WIRED[name]
    for epsilon in (0, 0.0, -3.0, math.nan, math.inf, 33.0, 10**400, -(10**400), "1", True, None):
        with pytest.raises(InvalidInput, match="epsilon must be"):
            mechanism.from_integers(epsilon, mechanism.integers)


@pytest.mark.parametrize("name", [n for n in CASES if "k" in WIRED[n].integers])
def test_a_domain_out_of_range_is_refused(name: str) -> None:
    mechanism = WIRED[name]
    for k in (1, 1 << 33):
        with pytest.raises(InvalidInput, match=rf"k must lie in 2\.\.\d+, got {k}"):
            mechanism.from_integers(1.0, mechanism.integers | {"k": (k,)})
