"""What an app agreed to when it was built holds against every other plan."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hearsay import MEMORY, Caps, Client, InvalidInput
from hearsay.agreement import Agreement
from hearsay.plans import plan
from hearsay.v1 import plan_pb2
from hearsay_server.surveys import survey as surveys
from support import SURVEY

DAILY = """
name = "daily"
period = "P1D"
default_level = "standard"
[levels]
strict = 1.0
standard = 2.0
[[attributes]]
name = "mood"
memo = 1
[attributes.categorical]
values = ["good", "so-so", "bad"]
[[attributes]]
name = "affair"
[attributes.categorical]
values = ["no", "long ago", "yes"]
sensitive = ["yes"]
[[attributes]]
name = "walked"
[attributes.numeric]
low = 0
high = 50
"""


def resolved(toml: str) -> bytes:
    return surveys.resolve(surveys.from_toml(toml, "test.toml"))


FROZEN = resolved(DAILY)
AGREED = Agreement.on(FROZEN)


def test_an_agreement_says_what_the_plan_does() -> None:
    assert Agreement(
        survey="daily",
        revision=hashlib.sha256(FROZEN).hexdigest(),
        period="P1D",
        domains={
            "mood": ("good", "so-so", "bad"),
            "affair": ("no", "long ago", "yes"),
            "walked": (0.0, 50.0),
        },
        levels={"strict": 1.0, "standard": 2.0},
        default_level="standard",
        may_reveal={"affair": ("no", "long ago")},
        may_tell_changes=("mood",),
        plan=FROZEN,
    ) == Agreement.on(FROZEN)
    AGREED.check(plan.parse(FROZEN))
    plain = Agreement.on(resolved(SURVEY))
    assert (plain.default_level, plain.may_reveal, plain.may_tell_changes) == ("", {}, ())


ATTACKS = {
    "another survey": ('"daily"', '"weekly"', "survey is 'weekly', the app expects 'daily'"),
    "another period": ('"P1D"', '"PT1H"', "period is 'PT1H', the app expects 'P1D'"),
    "fewer values": (
        '"good", "so-so", "bad"',
        '"good", "bad"',
        "domains['mood'] is ('good', 'bad'), the app expects ('good', 'so-so', 'bad')",
    ),
    "values in another order": (
        '"good", "so-so", "bad"',
        '"bad", "so-so", "good"',
        "domains['mood'] is ('bad', 'so-so', 'good'), the app expects",
    ),
    "a smaller range": (
        "high = 50",
        "high = 25",
        "domains['walked'] is (0.0, 25.0), the app expects (0.0, 50.0)",
    ),
    "an attribute more": (
        "high = 50\n",
        'high = 50\n[[attributes]]\nname = "age"\n[attributes.numeric]\nlow = 0\nhigh = 99\n',
        "domains['age'] is (0.0, 99.0), the app expects absent",
    ),
    "an attribute less": (
        '[[attributes]]\nname = "walked"\n[attributes.numeric]\nlow = 0\nhigh = 50\n',
        "",
        "domains['walked'] is absent, the app expects (0.0, 50.0)",
    ),
    "a looser level": (
        "strict = 1.0",
        "strict = 8.0",
        "levels['strict'] is 8.0, the app expects 1.0",
    ),
    "another default": (
        'default_level = "standard"',
        'default_level = "strict"',
        "default_level is 'strict', the app expects 'standard'",
    ),
    "more that may be revealed": (
        'sensitive = ["yes"]',
        'sensitive = ["no"]',
        "may_reveal['affair'] is ('long ago', 'yes'), the app expects ('no', 'long ago')",
    ),
    "a memo more": ("memo = 1\n", "", "may_tell_changes is (), the app expects ('mood',)"),
    "a change that nothing else shows": (
        'name = "walked"',
        'name = "walked"\nweight = 2',
        "revision is '",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_another_plan_is_refused_with_the_first_difference(attack: str) -> None:
    given, instead, difference = ATTACKS[attack]
    assert DAILY.count(given) == 1
    other = plan.parse(resolved(DAILY.replace(given, instead)))
    with pytest.raises(InvalidInput, match="is not what the app agreed to: ") as error:
        AGREED.check(other)
    assert f"agreed to: {difference}" in str(error.value)


def test_a_large_domain_is_not_repeated_whole() -> None:
    values = ", ".join(f'"town {number}"' for number in range(2000))
    other = plan.parse(resolved(DAILY.replace('"good", "so-so", "bad"', values)))
    with pytest.raises(InvalidInput, match=r"domains\['mood'\] is \('town 0', ") as error:
        AGREED.check(other)
    assert len(str(error.value)) < 500


def test_an_agreement_without_the_plan_holds_all_the_same() -> None:
    bare = replace(AGREED, plan=b"")
    bare.check(plan.parse(FROZEN))
    with pytest.raises(InvalidInput, match=r"levels\['strict'\] is 8\.0"):
        bare.check(plan.parse(resolved(DAILY.replace("strict = 1.0", "strict = 8.0"))))


@pytest.mark.parametrize("revision", ["", "00", "G" * 64, AGREED.revision.upper()])
def test_a_revision_that_is_none_is_refused(revision: str) -> None:
    with pytest.raises(InvalidInput, match="revision must be 64 lower-case hexadecimal digits"):
        replace(AGREED, revision=revision, plan=b"")


def test_a_plan_of_another_revision_cannot_be_put_in() -> None:
    other = resolved(DAILY.replace("strict = 1.0", "strict = 8.0"))
    with pytest.raises(InvalidInput, match="the plan in the agreement on 'daily' has revision"):
        replace(AGREED, plan=other)
    with pytest.raises(InvalidInput, match=r"levels\['strict'\] is 8\.0, the app expects 1\.0"):
        replace(AGREED, plan=other, revision=hashlib.sha256(other).hexdigest())


@pytest.mark.parametrize(
    "change",
    [
        lambda agreed: replace(agreed, levels={"strict": 0.5, "standard": 2.0}),
        lambda agreed: replace(agreed, may_reveal={}),
        lambda agreed: replace(agreed, may_tell_changes=()),
        lambda agreed: replace(agreed, default_level=""),
    ],
)
def test_a_module_that_was_edited_is_refused_when_it_is_imported(
    change: Callable[[Agreement], Agreement],
) -> None:
    with pytest.raises(InvalidInput, match="is not what the app agreed to"):
        change(AGREED)


def test_bytes_that_break_a_promise_are_nothing_to_agree_on() -> None:
    message = plan_pb2.Plan.FromString(FROZEN)
    message.survey.attributes[2].cap = 0.01
    with pytest.raises(InvalidInput, match="more than the attribute's cap"):
        Agreement.on(message.SerializeToString(deterministic=True))


NO_NUMBERS: list[Any] = ["3", b"3", True, [3], 3j, np.timedelta64(3), None]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
def test_what_is_no_number_is_no_epsilon_delta_or_cap(number: Any) -> None:
    for name in ("epsilon", "delta") if number is not None else ():
        with pytest.raises(InvalidInput, match=f"^{name} must be a number, got a "):
            Client("127.0.0.1:1", "daily", ledger=MEMORY, **{"epsilon": 1.0, name: number})
    with pytest.raises(InvalidInput, match=r"^the cap attribute mood must be a number, got a "):
        Caps(attribute={"mood": number})


def test_caps_are_floats_of_whatever_type_they_are_given() -> None:
    for number in (np.float32(3), np.int8(3), Decimal(3), Fraction(3), 3):
        caps = Caps(life=number, rho=number, attribute={"mood": number})  # type: ignore[arg-type]
        assert json.dumps(caps.as_dict()) == '{"life": 3.0, "attribute": {"mood": 3.0}, "rho": 3.0}'
    for beyond in (10**5000, Decimal("1e999999"), Decimal("sNaN")):
        with pytest.raises(InvalidInput, match="must be finite"):
            Caps(life=beyond)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"withhold": "mood"}, {"withhold": 5}, {"withhold": [5]}, {"may_tell_changes": "mood"},
        {"may_tell_changes": 5}, {"may_reveal": {"mood": 5}}, {"level": 5}, {"level": ["strict"]},
        {"levels": "mood"}, {"levels": {"mood": 5}}, {"levels": [("mood", "strict")]},
        {"revision": "zz"}, {"revision": ""}, {"revision": "A" * 64}, {"revision": "\u0663" * 64},
    ],
    ids=repr,
)  # fmt: skip
def test_an_argument_of_another_kind_is_refused_by_name(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(InvalidInput, match=name):
        Client("127.0.0.1:1", "daily", ledger=MEMORY, epsilon=1.0, **given)
