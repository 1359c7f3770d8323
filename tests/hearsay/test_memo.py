"""What a memo costs, and that a device with memos sends what its mechanism promises."""

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product
from math import prod

import numpy as np
import pytest
from branching import Distribution, distribution

from hearsay import InvalidInput
from hearsay.plans import plan
from hearsay.plans.memo import Memoizer
from hearsay.v1 import plan_pb2
from hearsay_server.surveys import survey as surveys
from ldp import HRR, KRR, LOLOHA, DBitFlip, KRRChain, UnaryChain, UnaryEncoding
from ldp.core.exact import certainly_at_most
from ldp.core.mechanism import Categorical
from ldp.testing import SeededCoins
from support import SURVEY


def loloha() -> LOLOHA:
    chain = KRRChain.calibrate(2, 0.5, 1.0)  # few buckets and a small prime, to be enumerated
    return LOLOHA(3, 0.5, 2, 3, chain.permanent, chain.instantaneous)


NOISY: dict[str, Categorical] = {
    "krr_chain": KRRChain.calibrate(3, 0.5, 1.0),
    "l_osue": UnaryChain.l_osue(3, 0.5, 1.0),
    "l_sue": UnaryChain.l_sue(3, 0.5, 1.0),
    "loloha": loloha(),
}
REPEATING: dict[str, Categorical] = {
    "krr": KRR(3, 0.5),
    "oue": UnaryEncoding(3, 0.5),
    "hrr": HRR(3, 0.5),
    "dbitflip": DBitFlip(3, 0.5, 2),
}
MECHANISMS = NOISY | REPEATING


def devices(memoizer: Memoizer) -> Distribution:
    return distribution(memoizer.enroll, bits=3)


def memos(memoizer: Memoizer, device: bytes, category: int) -> Distribution:
    return distribution(lambda coins: memoizer.memoize(device, category, coins), bits=3)


def reports(memoizer: Memoizer, memo: bytes) -> Distribution:
    return distribution(lambda coins: memoizer.report(memo, coins), bits=3)


def code(mechanism: Categorical, output: object) -> bytes:
    """Return an output of a channel as a report carries it."""
    if isinstance(output, int):
        return output.to_bytes(mechanism.code_bytes, "little")
    return mechanism.encode(np.array([output], dtype=mechanism.code_dtype))


class Joint:
    """The probabilities of reports of one device, by enumeration of its memos."""

    def __init__(self, memoizer: Memoizer, device: bytes) -> None:
        self.keys = [memoizer.key(device, category) for category in range(3)]
        self._memos = [memos(memoizer, device, category) for category in range(3)]
        self._reports = {memo: reports(memoizer, memo) for each in self._memos for memo in each}
        self.codes = sorted({code for each in self._reports.values() for code in each})

    def of_one(self, category: int, seen: tuple[bytes, ...]) -> Fraction:
        """Return the probability of so many reports of one memo of a category."""
        return sum(
            (
                chance * prod(self._reports[memo].get(code, Fraction(0)) for code in seen)
                for memo, chance in self._memos[category].items()
            ),
            Fraction(0),
        )


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_report_is_a_draw_from_the_channel_of_the_mechanism(name: str) -> None:
    mechanism = MECHANISMS[name]
    memoizer = Memoizer(mechanism)
    channel = mechanism.channel()
    for category, row in enumerate(channel.rows):
        found: Distribution = {}
        for device, enrolled in devices(memoizer).items():
            for memo, kept in memos(memoizer, device, category).items():
                for report, chance in reports(memoizer, memo).items():
                    found[report] = found.get(report, Fraction(0)) + enrolled * kept * chance
        wanted = {
            code(mechanism, y): chance for y, chance in zip(channel.outputs, row, strict=True)
        }
        assert {y: p for y, p in found.items() if p} == {y: p for y, p in wanted.items() if p}


@pytest.mark.parametrize("name", MECHANISMS)
def test_any_number_of_reports_of_one_memo_costs_its_epsilon_once(name: str) -> None:
    memoizer = Memoizer(MECHANISMS[name])
    for device in devices(memoizer):
        joint = Joint(memoizer, device)
        for count in (1, 2, 4):
            for seen in combinations_with_replacement(joint.codes, count):
                column = [joint.of_one(category, seen) for category in range(3)]
                if max(column):
                    assert certainly_at_most(max(column) / min(column), memoizer.epsilon)


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_a_memo_is_charged_is_what_it_tells(name: str) -> None:
    memoizer = Memoizer(MECHANISMS[name])
    worst = Fraction(1)
    for device in devices(memoizer):
        for each, other in permutations([memos(memoizer, device, v) for v in range(3)], 2):
            worst = max(worst, *(chance / other[memo] for memo, chance in each.items()))
    assert certainly_at_most(worst, memoizer.epsilon)
    assert not certainly_at_most(worst, 0.999 * memoizer.epsilon)


@pytest.mark.parametrize("name", ["krr_chain", "loloha", "krr", "dbitflip"])
def test_lives_whose_answers_repeat_at_the_same_times_cost_a_memo_for_each(name: str) -> None:
    memoizer = Memoizer(MECHANISMS[name])
    for device in devices(memoizer):
        joint = Joint(memoizer, device)
        lives = [(a, b) for a, b in permutations(range(3), 2) if joint.keys[a] != joint.keys[b]]
        for early in combinations_with_replacement(joint.codes, 2):
            for late in joint.codes:
                column = [joint.of_one(a, early) * joint.of_one(b, (late,)) for a, b in lives]
                if column and max(column):
                    assert certainly_at_most(max(column) / min(column), 2 * memoizer.epsilon)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_return_is_told_where_lives_change_at_the_same_times(name: str) -> None:
    """Compare the chance that the first and third report agree, of lives a, b, a and a, b, c."""
    memoizer = Memoizer(MECHANISMS[name])
    for device in devices(memoizer):
        joint = Joint(memoizer, device)
        for a, c in permutations(range(3), 2):
            back = sum(joint.of_one(a, (code, code)) for code in joint.codes)
            on = sum(joint.of_one(a, (code,)) * joint.of_one(c, (code,)) for code in joint.codes)
            if joint.keys[a] == joint.keys[c]:  # c is kept as a is
                continue
            assert back > on
            if not memoizer.is_noisy:
                assert back == 1 > on  # so no epsilon bounds what reports that differ tell


@pytest.mark.parametrize("name", MECHANISMS)
def test_categories_of_one_key_have_the_same_memos(name: str) -> None:
    memoizer = Memoizer(MECHANISMS[name])
    for device in devices(memoizer):
        by_key: dict[int, Distribution] = {}
        for category in range(3):
            key = memoizer.key(device, category)
            assert key >= 0
            mine = memos(memoizer, device, category)
            assert by_key.setdefault(key, mine) == mine


@pytest.mark.parametrize("name", REPEATING)
def test_without_noise_a_report_is_the_memo(name: str) -> None:
    memoizer, coins = Memoizer(REPEATING[name]), SeededCoins(1)
    assert not memoizer.is_noisy
    memo = memoizer.memoize(memoizer.enroll(coins), 1, coins)
    assert {memoizer.report(memo, coins) for _ in range(50)} == {memo}


@pytest.mark.parametrize("name", NOISY)
def test_with_noise_reports_of_one_memo_differ(name: str) -> None:
    memoizer, coins = Memoizer(NOISY[name]), SeededCoins(1)
    assert memoizer.is_noisy
    memo = memoizer.memoize(memoizer.enroll(coins), 1, coins)
    assert len({memoizer.report(memo, coins) for _ in range(50)}) > 1


@pytest.mark.parametrize("name", MECHANISMS)
def test_memos_and_reports_have_the_size_of_a_code(name: str) -> None:
    memoizer, coins = Memoizer(MECHANISMS[name]), SeededCoins(2)
    memo = memoizer.memoize(memoizer.enroll(coins), 2, coins)
    size = MECHANISMS[name].code_bytes
    assert (len(memo), len(memoizer.report(memo, coins))) == (size, size)


@pytest.mark.parametrize("name", MECHANISMS)
def test_bytes_that_are_no_memo_or_no_device_are_refused(name: str) -> None:
    memoizer, coins = Memoizer(MECHANISMS[name]), SeededCoins(3)
    device = memoizer.enroll(coins)
    refused: list[Callable[[], object]] = [
        lambda: memoizer.report(b"\xff" * MECHANISMS[name].code_bytes, coins),
        lambda: memoizer.report(b"", coins),
        lambda: memoizer.memoize(device + b"x", 0, coins),
        lambda: memoizer.key(device + b"x", 0),
        lambda: memoizer.key(device, 3),
        lambda: memoizer.memoize(device, -1, coins),
    ]
    for attempt in refused:
        with pytest.raises(InvalidInput):
            attempt()


def test_memos_are_kept_apart_by_mechanism() -> None:
    mechanisms = [*MECHANISMS.values(), KRRChain.calibrate(3, 0.5, 1.5), KRR(4, 0.5)]
    identities = [Memoizer(mechanism).identity for mechanism in mechanisms]
    assert len(set(identities)) == len(mechanisms)
    assert Memoizer(KRR(3, 0.5)).identity == Memoizer(KRR(3, 0.5)).identity


PERIODIC = SURVEY.replace('title = "A', 'period = "P1D"\ntitle = "A').replace(
    'mechanism = "krr"', "{}"
)


def frozen(declared: str) -> bytes:
    return surveys.resolve(surveys.from_toml(PERIODIC.format(declared), "test.toml"))


def tampered(change: Callable[[plan_pb2.Plan], object]) -> bytes:
    message = plan_pb2.Plan.FromString(frozen("memo = 2"))
    change(message)
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize(("declared", "times"), [("memo = 1", 1), ("memo = 2.5", 2.5)])
def test_a_plan_says_what_a_memo_costs(declared: str, times: float) -> None:
    resolved = plan.parse(frozen(declared))
    for name, level in resolved.levels.items():
        memoizer = resolved.memoizer(name, "smokes")
        assert memoizer is not None
        assert memoizer.is_noisy == (times > 1)
        most = Fraction(times) * Fraction(level.mechanisms["smokes"].epsilon)
        assert 0.999 * float(most) < memoizer.epsilon
        assert Fraction(memoizer.epsilon) <= most
        assert resolved.memoizer(name, "age") is None


def test_a_plan_has_no_memos_of_what_it_does_not_know() -> None:
    resolved = plan.parse(frozen("memo = 2"))
    with pytest.raises(InvalidInput, match="attribute must be one of smokes, age, got 'height'"):
        resolved.memoizer("strict", "height")
    with pytest.raises(InvalidInput, match="level must be one of strict, open, got 'lax'"):
        resolved.memoizer("lax", "smokes")


def test_a_memo_that_costs_more_than_declared_is_refused() -> None:
    def declare_less(message: plan_pb2.Plan) -> None:
        message.survey.attributes[0].memo = 1.999

    with pytest.raises(InvalidInput, match=r"'smokes': krr_chain: a memo has epsilon 1, more than"):
        plan.parse(tampered(declare_less))


def test_a_chain_whose_permanent_round_is_weaker_than_declared_is_refused() -> None:
    weaker = KRRChain.calibrate(3, 0.5, 1.01)

    def replace(message: plan_pb2.Plan) -> None:
        message.levels[0].mechanisms[0].CopyFrom(plan.mechanism_message(weaker))

    with pytest.raises(InvalidInput, match=r"a memo has epsilon 1\.01, more than 2 times the 0\.5"):
        plan.parse(tampered(replace))


@pytest.mark.parametrize("mechanism", [KRR(3, 0.5), DBitFlip(3, 0.5, 2)], ids=["krr", "dbitflip"])
def test_a_memo_that_is_to_get_noise_and_gets_none_is_refused(mechanism: Categorical) -> None:
    def replace(message: plan_pb2.Plan) -> None:
        message.levels[0].mechanisms[0].CopyFrom(plan.mechanism_message(mechanism))

    with pytest.raises(InvalidInput, match="memo = 2 promises fresh noise in every report, and"):
        plan.parse(tampered(replace))


@pytest.mark.parametrize("memo", [0.5, -1.0, float("nan"), float("inf")])
def test_a_memo_that_cannot_be_is_refused(memo: float) -> None:
    def declare(message: plan_pb2.Plan) -> None:
        message.survey.attributes[0].memo = memo

    with pytest.raises(InvalidInput, match="memo must be 0, or finite and >= 1, got"):
        plan.parse(tampered(declare))


def test_memos_of_what_has_none_are_refused() -> None:
    def of_numbers(message: plan_pb2.Plan) -> None:
        message.survey.attributes[1].memo = 1

    def of_sensitive_values(message: plan_pb2.Plan) -> None:
        message.survey.attributes[0].categorical.sensitive.append("yes")

    def without_periods(message: plan_pb2.Plan) -> None:
        message.survey.period = ""

    for change, reason in (
        (of_numbers, "memo is for categorical answers and strings only"),
        (of_sensitive_values, "memo is for values that are all protected alike"),
        (without_periods, "memo needs a survey with a period"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            plan.parse(tampered(change))


def test_a_longer_chain_of_reports_is_found_by_enumeration_to_tell_of_a_change() -> None:
    # What the docs warn of: no number of memos bounds what THAT an answer changed costs.
    memoizer = Memoizer(REPEATING["krr"])
    joint = Joint(memoizer, b"")
    seen = {codes: joint.of_one(0, codes) for codes in product(joint.codes, repeat=2)}
    stayed = [chance for (one, other), chance in seen.items() if one != other]
    assert set(stayed) == {0}  # two codes that differ tell for certain that the answer changed
