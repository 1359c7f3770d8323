"""Attributes that are asked together: in plans, in privacy accounts, and in what leaves."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from hearsay import Caps, InvalidInput, PlanRefused, create_ledger
from hearsay.agreement import Agreement
from hearsay.choices import Agreed, Choices
from hearsay.plans import plan as plans
from hearsay.plans.kinds import Categorical, Grid
from hearsay.plans.views import MOST_COMBINATIONS, combined
from hearsay.recording import ledger_file
from hearsay.recording.account import Account
from hearsay.recording.terms import Terms
from hearsay.testing import RecordingTransport
from hearsay.v1 import plan_pb2, survey_pb2
from hearsay_server.surveys import survey as surveys
from ldp.core.exact import log_upper
from ldp.mechanisms import KRR
from ldp.mechanisms.ranges.waves import Waves
from ldp.testing import SeededCoins
from support import Calendar, device

SURVEY = """
name = "sleep"
title = "Do smokers sleep worse?"
period = "P1D"
{budget}
views = [["smokes", "sleeps"], ["smokes", "age_group"]]
[levels]
strict = 0.5
open = 2.0
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["yes", "no"]
[[attributes]]
name = "sleeps"
[attributes.categorical]
values = ["well", "badly", "not at all"]
[[attributes]]
name = "age_group"
[attributes.categorical]
values = ["young", "old"]
[[attributes]]
name = "minutes"
[attributes.numeric]
low = 0
high = 600
"""

VIEWS = '["smokes", "sleeps"], ["smokes", "age_group"]'
QUESTIONS = ["minutes", "smokes+sleeps", "smokes+age_group"]


def resolved(budget: str = "split", text: str = SURVEY) -> bytes:
    return surveys.resolve(surveys.from_toml(text.format(budget=f'budget = "{budget}"'), "x.toml"))


SPLIT, SAMPLED = resolved(), resolved("sample")


def tampered(change: Callable[[plan_pb2.Plan], object], data: bytes = SPLIT) -> bytes:
    message = plan_pb2.Plan.FromString(data)
    change(message)
    return message.SerializeToString(deterministic=True)


# --- the combinations of values ------------------------------------------------------------------


def test_a_view_takes_the_place_of_its_attributes() -> None:
    plan = plans.parse(SPLIT)
    assert list(plan.attributes) == ["smokes", "sleeps", "age_group", "minutes"]
    assert list(plan.questions) == QUESTIONS
    for level in plan.levels.values():
        assert list(level.mechanisms) == QUESTIONS
    assert plan.parts("smokes+sleeps") == ("smokes", "sleeps")
    assert plan.questions_of(["smokes"]) == ("smokes+sleeps", "smokes+age_group")
    assert plan.questions_of(["sleeps", "age_group"]) == ()


def test_combinations_are_in_the_order_of_the_first_attribute() -> None:
    plan = plans.parse(SPLIT)
    view, domain = plan.views["smokes+sleeps"], plan.questions["smokes+sleeps"].domain
    order = list(product(range(2), range(3)))
    assert [view.category(categories) for categories in order] == list(range(6))
    assert domain.labels[:4] == ("yes, well", "yes, badly", "yes, not at all", "no, well")


def test_different_combinations_have_different_labels() -> None:
    one = Categorical(("a", "a, b", '"a"', '"a", b'))
    other = Categorical(("c", "b, c", '", c'))
    assert len(set(combined([one, other]).values)) == 12


def test_a_combination_is_sensitive_if_one_of_its_values_is() -> None:
    diagnosis = Categorical(("none", "flu", "HIV"), sensitive=("flu", "HIV"))
    drinks = Categorical(("no", "yes"), sensitive=("yes",))
    assert combined([diagnosis, drinks]).ordinary == ("none, no",)
    plain = Categorical(("young", "old"))
    assert combined([diagnosis, plain]).policy(1.0) is None  # every age is protected from the other


def test_a_combination_has_the_smallest_scale_of_its_values() -> None:
    one = Categorical(("a", "b", "c"), classes=((("b",), 0.5), (("c",), 0.25)))
    other = Categorical(("x", "y"), classes=((("y",), 0.5),))
    of = {value: scale for values, scale in combined([one, other]).classes for value in values}
    assert of == {"a, y": 0.5, "b, x": 0.5, "b, y": 0.5, "c, x": 0.25, "c, y": 0.25}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Categorical(("a", "b", "c"), sensitive=("b",)), Categorical(("x", "y"), sensitive=("y",))),
        (Categorical(("a", "b", "c"), sensitive=("b",)), Categorical(("x", "y"))),
        (
            Categorical(("a", "b", "c"), classes=((("b",), 0.5),)),
            Categorical(("x", "y"), sensitive=("y",)),
        ),
    ],
)
def test_a_value_is_protected_in_combinations_as_its_attribute_declares(
    one: Categorical, other: Categorical
) -> None:
    both = combined([one, other]).policy(1.0)
    cells = list(product(range(len(one.values)), range(len(other.values))))
    for domain, place in ((one, 0), (other, 1)):
        own = domain.policy(1.0)
        for x, first in enumerate(cells):
            for y, second in enumerate(cells):
                if first[place] != second[place]:
                    kept = 1.0 if both is None else both.distance(x, y)
                    declared = 1.0 if own is None else own.distance(first[place], second[place])
                    assert kept <= declared


# --- numbers in bins -----------------------------------------------------------------------------

NUMBERS = """
name = "flights"
views = [["minutes", "distance"], ["minutes", "late"]]
[levels]
strict = 1.0
[[attributes]]
name = "minutes"
[attributes.numeric]
low = 0
high = 1440
bins = {bins}
[[attributes]]
name = "distance"
[attributes.numeric]
low = 0
high = 3000
clamp = true
bins = 4
[[attributes]]
name = "late"
[attributes.categorical]
values = ["no", "yes"]
"""


def test_two_numbers_in_bins_are_a_grid_and_others_are_values() -> None:
    plan = plans.parse(resolved(text=NUMBERS.replace("{bins}", "3")))
    grid, mixed = (plan.questions[name].domain for name in plan.views)
    assert isinstance(grid, Grid) and grid.sides == (3, 4)
    assert grid.labels[4] == "480 to under 960, 0 to under 750"
    (waves, other) = plan.levels["strict"].mechanisms.values()
    assert isinstance(waves, Waves) and waves.sides == (3, 4)
    assert isinstance(mixed, Categorical) and len(mixed.values) == 6 and not mixed.sensitive
    assert mixed.labels[1] == "0 to under 480, yes" and other.parameters == 6
    with pytest.raises(InvalidInput, match="waves does not fit 3 x 4 bins"):
        grid.check(Waves((4, 3), 1.0))


def test_a_record_of_numbers_is_placed_in_their_rectangle() -> None:
    plan = plans.parse(resolved(text=NUMBERS.replace("{bins}", "3")))
    transport = RecordingTransport(resolved(text=NUMBERS.replace("{bins}", "3")))
    mine = Terms.of(plan, Choices("strict"), Agreed("flights", 1.0), frozenset())
    values = {"minutes": 500, "distance": 9000, "late": "yes"}
    encoded = {name: mine.encode(name, answer) for name, answer in values.items()}
    coins = SeededCoins(1)
    assert mine.value("minutes+distance", encoded, coins) == 1 * 4 + 3
    assert mine.value("minutes+late", encoded, coins) == 1 * 2 + 1
    with device(transport, "flights") as client:
        assert set(client.record(**values).taken) == set(values)


def test_two_numbers_have_at_most_so_many_bins_together() -> None:
    with pytest.raises(InvalidInput, match=r"minutes\+distance\): .* at most 256 .* 65 x 4 = 260"):
        resolved(text=NUMBERS.replace("{bins}", "65"))


# --- privacy, by enumeration ---------------------------------------------------------------------


@pytest.mark.parametrize("level", ["strict", "open"])
@pytest.mark.parametrize("data", [SPLIT, SAMPLED], ids=["split", "sample"])
def test_all_that_a_record_reports_keeps_the_levels_epsilon(data: bytes, level: str) -> None:
    """Enumerate the channel of whole records: (smokes, sleeps, age_group), for each draw."""
    plan = plans.parse(data)
    chosen = plan.level(level)
    records = list(product(range(2), range(3), range(2)))
    rows = {}
    for name in plan.views:
        view, channel = plan.views[name], chosen.mechanisms[name].channel()
        places = [list(plan.attributes).index(part) for part in view.attributes]
        rows[name] = [channel.rows[view.category([r[p] for p in places])] for r in records]
    drawn = {"split": [list(plan.views)], "sample": [[name] for name in plan.views]}
    worst = Fraction(1)
    for names in drawn["split" if data == SPLIT else "sample"]:
        for x, y in product(range(len(records)), repeat=2):
            ratio = Fraction(1)
            for name in names:  # codes are independent given the record
                ratio *= max(a / b for a, b in zip(rows[name][x], rows[name][y], strict=True))
            worst = max(worst, ratio)
    spent = chosen.epsilon
    if data == SPLIT:
        spent -= chosen.mechanisms["minutes"].epsilon
    assert 0.999 * spent <= log_upper(worst) <= spent


# --- plans that lie ------------------------------------------------------------------------------


def _views(*views: list[str]) -> Callable[[plan_pb2.Plan], object]:
    def change(message: plan_pb2.Plan) -> None:
        del message.survey.views[:]
        message.survey.views.extend(survey_pb2.View(attributes=names) for names in views)

    return change


def _memo(message: plan_pb2.Plan) -> None:
    message.survey.attributes[0].memo = 1.0


def _maps(message: plan_pb2.Plan) -> None:
    message.survey.attributes[1].categorical.maps["mine"].sensitive.append("badly")


def _many_values(message: plan_pb2.Plan) -> None:
    for attribute in message.survey.attributes[:2]:
        attribute.categorical.values.extend(f"v{number}" for number in range(64))


def _taken(message: plan_pb2.Plan) -> None:
    message.survey.attributes[3].name = "smokes+sleeps"


def _capped(message: plan_pb2.Plan) -> None:
    # Each of the two views stays below the cap; a record reports both.
    message.survey.attributes[0].cap = 1.25 * message.levels[1].mechanisms[1].epsilon


def _swapped(message: plan_pb2.Plan) -> None:
    message.levels[0].mechanisms[1].CopyFrom(message.levels[0].mechanisms[2])


def _fewer(message: plan_pb2.Plan) -> None:
    del message.levels[0].mechanisms[2]


def _looser(message: plan_pb2.Plan) -> None:
    message.levels[0].mechanisms[2].CopyFrom(message.levels[1].mechanisms[2])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_views(["smokes"]), r"views\[0\]: a view is of two attributes at least"),
        (_views([]), r"views\[0\]: a view is of two attributes at least"),
        (_views(["smokes", "smokes"]), r"each attribute once, got 'smokes' 2 times"),
        (_views(["smokes", "drinks"]), r"'drinks' is no attribute; expected smokes, sleeps"),
        (_views(["smokes", "minutes"]), r"'minutes' has neither a list of values nor bins"),
        (
            _views(["smokes", "sleeps"], ["sleeps", "smokes"]),
            r"views\[1\]: another view has the attributes sleeps, smokes",
        ),
        (_memo, r"views\[0\]: 'smokes' has a memo, and a view has none"),
        (_maps, r"views\[0\]: 'sleeps' has maps, and a view has none"),
        (_many_values, r"at most 4096 .* got smokes \(66\) x sleeps \(67\) = 4422"),
        (_taken, r"views\[0\]: the name 'smokes\+sleeps' is taken"),
        (_capped, r"'open': the views of 'smokes' have epsilon .* together, more than its cap"),
        (_swapped, r"'smokes\+sleeps': hrr does not fit 6 values"),
        (_fewer, r"'strict' has 2 mechanisms for 3 questions"),
        (_looser, r"'strict' promises epsilon 0.5 for a record"),
        (lambda message: message.survey.ClearField("views"), r"has 3 mechanisms for 4 questions"),
    ],
)
def test_a_plan_whose_views_cannot_be_is_refused(
    change: Callable[[plan_pb2.Plan], object], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        plans.parse(tampered(change))


def test_a_server_cannot_make_parsing_long_by_views() -> None:
    names = [f"a{number}" for number in range(100)]
    survey = survey_pb2.Survey(name="long", levels={"only": 1.0})
    for name in names:
        attribute = survey.attributes.add(name=name)
        attribute.categorical.values.extend(map(str, range(64)))
    for number, name in enumerate(names[1:17]):
        survey.views.add(attributes=[names[number], name])
    survey.views.add(attributes=[names[0], names[50]])
    data = plan_pb2.Plan(survey=survey).SerializeToString(deterministic=True)
    with pytest.raises(InvalidInput, match=r"views\[16\]: views have at most 65536 combinations"):
        plans.parse(data)
    for _ in range(1024):
        survey.views.add()
    data = plan_pb2.Plan(survey=survey).SerializeToString(deterministic=True)
    with pytest.raises(InvalidInput, match="at most 1024 views, got 1041"):
        plans.parse(data)
    assert MOST_COMBINATIONS == 64 * 64


def test_a_cap_holds_for_all_views_that_a_record_reports() -> None:
    text = SURVEY.replace('name = "smokes"', 'name = "smokes"\ncap = 1.0')
    for budget, each in (("split", 0.5), ("sample", 1.0)):
        for level in plans.parse(resolved(budget, text)).levels.values():
            views = [level.mechanisms[name].epsilon for name in QUESTIONS[1:]]
            assert views == pytest.approx([min(each, level.epsilon / (1 if each == 1 else 3))] * 2)
            assert budget == "sample" or sum(map(Fraction, views)) <= 1


# --- a person's terms ----------------------------------------------------------------------------


def terms(data: bytes = SPLIT, withheld: frozenset[str] = frozenset(), **choices: object) -> Terms:
    plan = plans.parse(data)
    return Terms.of(plan, Choices(**choices), Agreed("sleep", 10.0), withheld)  # type: ignore[arg-type]


def test_a_view_is_reported_at_the_strictest_of_its_attributes_levels() -> None:
    mine = terms(level="open", levels=(("sleeps", "strict"),))
    assert {name: level.name for name, level in mine.levels.items()} == {
        "minutes": "open",
        "smokes+sleeps": "strict",
        "smokes+age_group": "open",
    }
    looser = terms(level="strict", levels=(("sleeps", "open"),))
    assert looser.levels["smokes+sleeps"].name == "strict"


def test_a_withheld_attribute_withholds_its_views() -> None:
    mine = terms(level="strict", withheld=frozenset(["sleeps"]))
    assert mine.answered == {"minutes", "smokes+age_group"}
    assert mine.record_epsilon == pytest.approx(2 / 3 * 0.5)
    assert terms(level="strict", withheld=frozenset(["smokes"])).answered == {"minutes"}


def test_a_cap_of_an_attribute_counts_all_its_views() -> None:
    mine = terms(level="strict")
    mine.check_caps(Caps(attribute={"smokes": 2 / 3 * 0.5, "sleeps": 0.5 / 3}))
    with pytest.raises(InvalidInput, match=r"'strict' spends epsilon 0.333333 on 'smokes', above"):
        mine.check_caps(Caps(attribute={"smokes": 0.3}))
    sampled = terms(SAMPLED, level="strict")
    sampled.check_caps(Caps(attribute={"smokes": 0.5}))  # a record reports one of the two


def _mixed(plan: plan_pb2.Plan) -> None:
    plan.survey.attributes[0].cap = 1.0  # of smokes
    for level, (first, second) in zip(plan.levels, [(0.3, 0.02), (0.02, 0.9)], strict=True):
        level.mechanisms[1].CopyFrom(plans.mechanism_message(KRR(6, first)))
        level.mechanisms[2].CopyFrom(plans.mechanism_message(KRR(4, second)))


def test_levels_that_together_exceed_an_attributes_cap_are_refused() -> None:
    data = tampered(_mixed)
    assert terms(data, level="open").epsilon_of("smokes") <= 1.0
    assert terms(data, level="strict").epsilon_of("smokes") <= 1.0
    mixed = (("sleeps", "strict"),)
    with pytest.raises(InvalidInput, match=r"spend epsilon 1.2 on the views of 'smokes'"):
        terms(data, level="open", levels=mixed)
    terms(data, frozenset(["sleeps"]), level="open", levels=mixed)  # one view is left


def test_a_plan_that_reveals_combinations_needs_the_apps_agreement() -> None:
    text = SURVEY.replace('["yes", "no"]', '["yes", "no"]\nsensitive = ["yes"]')
    assert plans.parse(resolved(text=text)).revealed == {}  # views with attributes that reveal none
    both = text.replace('"not at all"]', '"not at all"]\nsensitive = ["badly", "not at all"]')
    data = resolved(text=both)
    plan = plans.parse(data)
    assert plan.revealed == {"smokes": ("no",), "sleeps": ("well",)}
    with pytest.raises(InvalidInput, match="a report of 'smokes' may reveal no; if that is meant"):
        Agreed("sleep", 10.0).check(plan, frozenset())
    agreed = {"smokes": frozenset(["no"]), "sleeps": frozenset(["well"])}
    Agreed("sleep", 10.0, may_reveal=agreed).check(plan, frozenset())
    agreement = Agreement.on(data)
    assert agreement.views == (("smokes", "sleeps"), ("smokes", "age_group"))
    assert agreement.may_reveal == {"smokes": ("no",), "sleeps": ("well",)}
    with pytest.raises(InvalidInput, match=r"views is \(\), the app expects"):
        agreement.check(plans.parse(resolved(text=both.replace("views = [[", "#"))))


# --- records -------------------------------------------------------------------------------------

ALL = {"smokes": "yes", "sleeps": "badly", "age_group": "old", "minutes": 300}


def test_a_complete_record_reports_every_view_once() -> None:
    transport = RecordingTransport(SPLIT)
    with device(transport, "sleep") as client:
        recorded = client.record(**ALL)
        assert set(recorded.taken) == set(ALL)
        assert client.record(**ALL).dropped == dict.fromkeys(ALL, "spent")
        assert client.flush()
        spent = {each.attribute: each for each in client.spendings()}
        assert client.record_epsilon == 0.5
    (batch,) = transport.batches
    assert [column.attribute for column in batch.columns] == sorted(QUESTIONS)
    third = 0.5 / 3
    assert spent["smokes"].life == spent["smokes"].epsilon == pytest.approx(2 * third)
    assert spent["smokes"].reports == 2
    assert spent["sleeps"].life == spent["minutes"].life == pytest.approx(third)
    assert all(each.answered for each in spent.values())


def test_an_answer_without_its_companion_is_not_reported() -> None:
    transport = RecordingTransport(SPLIT)
    with device(transport, "sleep") as client:
        assert client.record(smokes="yes").dropped == {"smokes": "incomplete"}
        assert client.record(smokes="yes", sleeps=None).dropped == {"smokes": "incomplete"}
        partly = client.record(smokes="yes", sleeps="well", minutes=8)
        assert partly.taken == ("smokes", "sleeps", "minutes") and not partly.dropped
        # The other view is still to be had, with the attribute that two views share.
        later = client.record(smokes="yes", age_group="old")
        assert later.taken == ("smokes", "age_group") and not later.dropped
        assert client.counters["incomplete"] == 2


def test_a_sampled_record_reports_one_question() -> None:
    seen, clock = [], Calendar()
    transport = RecordingTransport(SAMPLED)
    with device(transport, "sleep", coins=SeededCoins(1), clock=clock) as client:
        for _ in range(12):
            transport.server_time = int(clock.now.timestamp())
            client.trust_clock()
            recorded = client.record(**ALL)
            seen.append(recorded.taken)
            others = [name for name in ALL if name not in recorded.taken]
            assert recorded.dropped == dict.fromkeys(others, "idle")
            assert client.flush()
            clock.pass_days(1)
    assert set(seen) == {("minutes",), ("smokes", "sleeps"), ("smokes", "age_group")}


def test_an_incomplete_view_that_was_drawn_is_told_from_one_that_was_not() -> None:
    clock, reasons = Calendar(), set()
    with device(RecordingTransport(SAMPLED), "sleep", coins=SeededCoins(1), clock=clock) as client:
        for _ in range(12):  # nothing is sent, so that no server tells another time
            client.trust_clock()
            reasons.add(client.record(smokes="no").dropped["smokes"])
            clock.pass_days(1)
    assert reasons == {"idle", "incomplete"}


def test_whether_a_view_leaves_does_not_depend_on_answers() -> None:
    outcomes = []
    for wrong in ({}, {"smokes": "maybe"}, {"smokes": 1.5, "sleeps": math.nan}):
        transport = RecordingTransport(SPLIT)
        with device(transport, "sleep", strict=False) as client:
            recorded = client.record(**{**ALL, **wrong})
            assert set(recorded.invalid) == set(wrong)
            assert client.flush()
        (batch,) = transport.batches
        columns = [(column.attribute, len(column.codes)) for column in batch.columns]
        outcomes.append((recorded.taken, recorded.dropped, columns))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_an_answer_outside_its_domain_leaves_the_others_of_its_view_as_they_are() -> None:
    mine, seen = terms(level="open"), set()
    coins = SeededCoins(5)
    for _ in range(60):
        seen.add(mine.value("smokes+sleeps", {"smokes": 1, "sleeps": None}, coins))
    assert seen == {3, 4, 5}  # "no", with every answer to the other
    assert mine.value("smokes+sleeps", {"smokes": 0, "sleeps": 2}, coins) == 2


def test_a_cap_for_the_life_of_an_attribute_counts_all_its_views() -> None:
    third = 0.5 / 3
    caps = Caps(attribute_life={"smokes": 3.5 * third})
    clock = Calendar()
    with device(RecordingTransport(SPLIT), "sleep", caps=caps, clock=clock) as client:
        assert set(client.record(**ALL).taken) == set(ALL)
        assert client.flush()
        clock.pass_days(1)
        client.trust_clock()
        second = client.record(**ALL)
        # One more view of smokes fits, the other does not; what the first has was taken.
        assert second.taken == ("smokes", "sleeps", "minutes")
        assert second.dropped == {"age_group": "spent"}
        (left,) = [each.left for each in client.spendings() if each.attribute == "smokes"]
        assert left == pytest.approx(0.5 * third)


def test_what_was_spent_on_an_attribute_counts_however_a_later_revision_asks_it(
    tmp_path: Path,
) -> None:
    ledger, clock = tmp_path / "ledger.db", Calendar(-3)
    create_ledger(ledger)
    caps, spent = Caps(attribute_life={"smokes": 0.4}), 0.0
    for views, cost in [
        ("", 0.125),
        ('["smokes", "sleeps"]', 0.5 / 3),
        ('["smokes", "age_group"]', 0.0),
    ]:
        data = resolved(text=SURVEY.replace(VIEWS, views))
        given = {"ledger": ledger, "caps": caps, "clock": clock}
        with device(RecordingTransport(data), Agreement.on(data), **given) as client:
            client.trust_clock()
            assert ("smokes" in client.record(**ALL).taken) == (cost > 0)
            spent += cost
            mine = client.spendings()[0]
            assert (mine.life, mine.left) == pytest.approx((spent, 0.4 - spent))
            assert (mine.reports, mine.answered) == (1 if spent == 0.125 else 2, cost > 0)
            assert mine.composed == pytest.approx(spent, rel=0.1)
        clock.pass_days(1)
    (shown,) = ledger_file.read(ledger).surveys
    assert shown.spent.keys() == {"smokes", "smokes+sleeps", "sleeps", "age_group", "minutes"}
    # Without caps of the person's own nothing is shown as left; with them, of old names, too.
    with device(RecordingTransport(data), Agreement.on(data), **given) as client:
        client.set_caps(Caps(attribute_life={"smokes": 0.4}))
    (shown,) = ledger_file.read(ledger).surveys
    assert [shown.left[name] for name in ("smokes", "smokes+sleeps", "smokes+age_group")] == (
        pytest.approx([0.4 - spent] * 3)
    )


def test_a_name_of_an_attribute_that_is_a_views_name_later_counts_for_both() -> None:
    named = tampered(_taken, resolved(text=SURVEY.replace(VIEWS, "")))
    account, clock = Account("{}", "sleep"), Calendar()
    account.enter(terms(named, level="strict"), clock(), None, SeededCoins(1))
    account.report("smokes+sleeps", 0.125, calls=0.125, life=0.125, variation=None)
    clock.pass_days(1)
    account.enter(terms(level="strict"), clock(), None, SeededCoins(1))
    account = Account(account.dump(), "sleep")  # as it is kept
    for attribute, left in (("smokes+sleeps", 0.875), ("smokes", 0.875), ("minutes", 1.0)):
        assert account.left(attribute, [Caps(attribute_life={attribute: 1.0})]) == left


def test_a_cap_for_life_counts_a_report_of_a_view_once() -> None:
    with device(RecordingTransport(SPLIT), "sleep", caps=Caps(life=0.5)) as client:
        assert set(client.record(**ALL).taken) == set(ALL)


def test_a_plan_that_asks_one_view_more_is_refused_by_an_app_built_with_its_agreement() -> None:
    agreement = Agreement.on(resolved(text=SURVEY.replace(', ["smokes", "age_group"]', "")))
    agreement = Agreement(**{**vars(agreement), "plan": b""})
    with pytest.raises(PlanRefused, match="views is"):
        device(RecordingTransport(SPLIT), agreement)
