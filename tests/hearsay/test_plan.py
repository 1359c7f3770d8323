"""A plan is checked by whoever builds it: the server is not trusted with privacy."""

import hashlib
import math
import time
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearsay import InvalidInput, plan
from hearsay.plan import Categorical, Numeric
from hearsay.v1 import plan_pb2
from hearsay_server import survey as surveys
from ldp import RAPPOR, KRRChain, Mechanism, OrderedExponential
from support import SURVEY

FROZEN = surveys.resolve(surveys.from_toml(SURVEY, "test.toml"))


def tampered(change: Callable[[plan_pb2.Plan], object]) -> bytes:
    message = plan_pb2.Plan.FromString(FROZEN)
    change(message)
    return message.SerializeToString()


def test_the_revision_is_the_hash_of_the_frozen_bytes() -> None:
    assert plan.parse(FROZEN).revision == hashlib.sha256(FROZEN).digest()


def test_each_levels_mechanisms_add_up_to_at_most_its_epsilon() -> None:
    for level in plan.parse(FROZEN).levels.values():
        realised = [Fraction(m.realised_epsilon) for m in level.mechanisms.values()]
        assert sum(realised) <= Fraction(level.epsilon)
        assert sum(realised) >= Fraction(level.epsilon) * 999 / 1000


def test_integers_that_give_more_than_their_epsilon_are_refused() -> None:
    def weaken(message: plan_pb2.Plan) -> None:
        message.levels[0].mechanisms[0].parameters[1].values[0] //= 2

    with pytest.raises(InvalidInput, match="'strict', 'smokes': krr: the integers give epsilon"):
        plan.parse(tampered(weaken))


def test_mechanisms_that_add_up_to_more_than_their_level_are_refused() -> None:
    def lower(message: plan_pb2.Plan) -> None:
        message.levels[1].epsilon = 3.9

    with pytest.raises(InvalidInput, match=r"'open' promises epsilon 3\.9 .* add up to 4"):
        plan.parse(tampered(lower))


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, -1.0])
def test_a_level_whose_epsilon_is_no_number_is_refused(epsilon: float) -> None:
    def confuse(message: plan_pb2.Plan) -> None:
        message.levels[0].epsilon = epsilon

    with pytest.raises(InvalidInput, match="'strict' promises epsilon"):
        plan.parse(tampered(confuse))


def test_a_mechanism_of_another_domain_is_refused() -> None:
    def swap(message: plan_pb2.Plan) -> None:
        mechanisms = message.levels[0].mechanisms
        mechanisms[0].CopyFrom(mechanisms[1])

    with pytest.raises(InvalidInput, match="'smokes': onebit does not fit categorical answers"):
        plan.parse(tampered(swap))


def replaced(mechanism: Mechanism) -> bytes:
    """The plan with another mechanism for 'smokes' at 'strict'."""

    def replace(message: plan_pb2.Plan) -> None:
        message.levels[0].mechanisms[0].CopyFrom(plan.mechanism_message(mechanism))

    return tampered(replace)


def test_any_mechanism_for_as_many_categories_fits() -> None:
    for mechanism in (OrderedExponential(3, 0.5), KRRChain.calibrate(3, 0.5, 1.0)):
        assert plan.parse(replaced(mechanism)).levels["strict"].mechanisms["smokes"] == mechanism


@pytest.mark.parametrize("mechanism", [OrderedExponential(4, 0.5), RAPPOR.calibrate(0.5, 1.0)])
def test_another_number_of_categories_or_none_does_not_fit(mechanism: Mechanism) -> None:
    with pytest.raises(InvalidInput, match=f"'smokes': {mechanism.name} does not fit"):
        plan.parse(replaced(mechanism))


def test_a_missing_mechanism_is_refused() -> None:
    def drop(message: plan_pb2.Plan) -> None:
        del message.levels[0].mechanisms[1]

    with pytest.raises(InvalidInput, match="has 1 mechanisms for 2 attributes"):
        plan.parse(tampered(drop))


DELICATE = SURVEY.replace('mechanism = "krr"', "").replace(
    'values = ["no", "sometimes", "yes"]',
    'values = ["no", "sometimes", "yes"]\nsensitive = ["yes"]',
)


def delicate(change: Callable[[plan_pb2.Plan], object]) -> bytes:
    frozen = surveys.resolve(surveys.from_toml(DELICATE, "test.toml"))
    message = plan_pb2.Plan.FromString(frozen)
    change(message)
    return message.SerializeToString()


def test_a_policy_that_protects_less_than_the_domain_declares_is_refused() -> None:
    def more(message: plan_pb2.Plan) -> None:  # "sometimes" is now declared sensitive as well
        message.survey.attributes[0].categorical.sensitive.append("sometimes")

    def all_of_them(message: plan_pb2.Plan) -> None:
        del message.survey.attributes[0].categorical.sensitive[:]

    def another(message: plan_pb2.Plan) -> None:
        message.survey.attributes[0].categorical.sensitive[0] = "no"

    assert plan.parse(delicate(lambda message: None)).attributes["smokes"].domain.ordinary
    for change in (more, all_of_them, another):
        with pytest.raises(InvalidInput, match="keeps another policy than its values declare"):
            plan.parse(delicate(change))


def test_a_mechanism_that_protects_more_than_declared_is_taken() -> None:
    def declare(message: plan_pb2.Plan) -> None:
        message.survey.attributes[0].categorical.sensitive.append("yes")

    assert plan.parse(tampered(declare))  # k-RR protects all values alike


def test_chances_that_are_no_budget_are_refused() -> None:
    def one_chance(message: plan_pb2.Plan) -> None:
        message.levels[0].chances.append(5)

    def half(message: plan_pb2.Plan) -> None:
        message.levels[0].chances.extend([1 << 62, 1 << 62])

    with pytest.raises(InvalidInput, match="'strict': a budget has one epsilon and one chance"):
        plan.parse(tampered(one_chance))
    with pytest.raises(InvalidInput, match=r"'strict': the chances must sum to a multiple of 2"):
        plan.parse(tampered(half))


def test_attributes_that_may_be_reported_together_are_added_up() -> None:
    sampled = SURVEY.replace('title = "A', 'budget = "sample"\ntitle = "A')
    message = plan_pb2.Plan.FromString(surveys.resolve(surveys.from_toml(sampled, "test.toml")))
    plan.parse(message.SerializeToString())
    message.levels[1].chances[:] = [0, 0]  # always, both: twice the epsilon of the level
    with pytest.raises(InvalidInput, match=r"'open' promises epsilon 4 .* add up to 8"):
        plan.parse(message.SerializeToString())


def test_a_mechanism_of_a_later_version_is_refused() -> None:
    def rename(message: plan_pb2.Plan) -> None:
        message.levels[0].mechanisms[0].name = "quantum"

    with pytest.raises(InvalidInput, match="unknown mechanism 'quantum'"):
        plan.parse(tampered(rename))


@given(st.binary(max_size=200))
def test_random_bytes_are_no_plan(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        plan.parse(data)


@given(st.integers(0, len(FROZEN) - 1), st.integers(1, 255))
def test_a_plan_with_one_byte_changed_never_exceeds_its_promise(place: int, flip: int) -> None:
    data = bytearray(FROZEN)
    data[place] ^= flip
    try:
        changed = plan.parse(bytes(data))
    except InvalidInput:
        return
    for level in changed.levels.values():
        total = sum(Fraction(m.realised_epsilon) for m in level.mechanisms.values())
        assert total <= Fraction(level.epsilon)


def test_a_category_may_be_spelled_by_an_integer() -> None:
    rating = Categorical(("1", "2", "3"))
    assert [rating.encode(answer) for answer in ("1", 2, "3")] == [0, 1, 2]


@pytest.mark.parametrize("answer", ["secret", 4, 1.0, True, b"1", np.int64(7)])
def test_an_answer_outside_the_domain_is_refused_without_being_repeated(answer: object) -> None:
    kind = type(answer).__name__
    with pytest.raises(InvalidInput, match=f"^must be one of 1, 2, got another {kind}$"):
        Categorical(("1", "2")).encode(answer)


def test_numbers_are_placed_between_minus_one_and_one() -> None:
    age = Numeric(20, 60, clamp=False)
    assert [age.encode(x) for x in (20, np.float32(40), np.int64(60))] == [-1, 0, 1]


@pytest.mark.parametrize("answer", [61, 19.999, math.nan, math.inf, "40", True, [40]])
def test_a_number_that_does_not_fit_is_refused(answer: object) -> None:
    with pytest.raises(InvalidInput, match=r"^must (be|lie)"):
        Numeric(20, 60, clamp=False).encode(answer)


SECRET = "HIV-positive"


@pytest.mark.parametrize(
    "answer",
    [
        np.str_(SECRET),
        np.bytes_(b"40"),
        np.True_,
        np.array([1.0, 2.0]),
        np.datetime64("2026-01-01"),
        10**400,
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("1e999"),
        1j,
        None,
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_what_only_looks_like_a_number_is_refused_without_being_repeated(answer: object) -> None:
    with pytest.raises(InvalidInput, match=r"^must (be|fit)") as error:
        Numeric(20, 60, clamp=True).encode(answer)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("answer", [Fraction(81, 2), Decimal("40.5"), np.float32(40.5), 40.5])
def test_every_kind_of_number_is_taken(answer: object) -> None:
    assert Numeric(20, 60, clamp=False).encode(answer) == pytest.approx(0.025)


@pytest.mark.parametrize(
    "answer", [10**5000, -(10**5000), np.True_, 1.0, None], ids=lambda answer: type(answer).__name__
)
def test_a_category_that_cannot_be_spelled_is_refused(answer: object) -> None:
    with pytest.raises(InvalidInput, match=r"^must be one of 1, 2, got another"):
        Categorical(("1", "2")).encode(answer)


def test_a_large_domain_is_built_and_searched_at_once() -> None:
    names = tuple(f"town {number}" for number in range(200_000))
    begin = time.process_time()
    towns = Categorical(names)
    for name in names:
        towns.encode(name)
    assert time.process_time() - begin < 20  # 0.2 s; a search per answer would take hours


def test_attributes_and_levels_have_names_of_their_own() -> None:
    def rename_attribute(message: plan_pb2.Plan) -> None:
        message.survey.attributes[1].name = "smokes"

    def rename_level(message: plan_pb2.Plan) -> None:
        message.levels[1].name = "strict"

    with pytest.raises(InvalidInput, match="needs attributes, each with a name of its own"):
        plan.parse(tampered(rename_attribute))
    with pytest.raises(InvalidInput, match="needs levels, each with a name of its own"):
        plan.parse(tampered(rename_level))


def test_a_parameter_that_comes_twice_is_refused() -> None:
    def double(message: plan_pb2.Plan) -> None:
        parameters = message.levels[0].mechanisms[0].parameters
        parameters.append(parameters[0])

    with pytest.raises(InvalidInput, match="'strict', 'smokes': a parameter comes twice"):
        plan.parse(tampered(double))


def test_a_clamped_number_moves_to_the_nearer_end() -> None:
    age = Numeric(20, 60, clamp=True)
    assert [age.encode(x) for x in (1e300, -5)] == [1, -1]
    with pytest.raises(InvalidInput, match="must be finite"):
        age.encode(math.nan)
