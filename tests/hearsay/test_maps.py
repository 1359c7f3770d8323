"""A person chooses which values they mind: what a device sends, refuses and is charged."""

import json
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hearsay import MEMORY, Agreement, Caps, Client, InvalidInput, create_ledger
from hearsay.plans.kinds import MOST_MAPS, Categorical
from hearsay.plans.plan import parse
from hearsay.recording import ledger_file
from hearsay.recording.account import Account
from hearsay.testing import RecordingTransport
from hearsay.v1 import plan_pb2
from hearsay_server.surveys import survey as surveys
from ldp.core.exact import exp_bounds
from support import Calendar, device

VALUES = ("none", "cold", "flu", "allergy", "std", "cancer")
MINE, WORK = ("std", "cancer"), ("flu", "std")
TOML = f"""
name = "clinic"
period = "P1D"
[levels]
strict = 0.5
open = 2.0
[[attributes]]
name = "diagnosis"
weight = 3
[attributes.categorical]
values = {list(VALUES)}
[attributes.categorical.maps.mine]
sensitive = {list(MINE)}
[attributes.categorical.maps.work]
sensitive = {list(WORK)}
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["no", "yes"]
"""
FROZEN = surveys.resolve(surveys.from_toml(TOML, "clinic.toml"))
PLAN = parse(FROZEN)


def ordinary(sensitive: tuple[str, ...]) -> list[str]:
    return [value for value in VALUES if value not in sensitive]


MAY_REVEAL = {"diagnosis": {"mine": ordinary(MINE), "work": ordinary(WORK)}}


def client(transport: RecordingTransport, **options: Any) -> Client:
    """A client that names the survey and allows what its maps reveal."""
    usual = {"epsilon": 2.0, "level": "strict", "may_reveal": MAY_REVEAL, "strict": True}
    return Client(transport, "clinic", ledger=MEMORY, consent=True, **{**usual, **options})


def edited(edit: Callable[[plan_pb2.Plan], object]) -> bytes:
    """Return the bytes of the plan after a change to its message."""
    plan = plan_pb2.Plan.FromString(FROZEN)
    edit(plan)
    data: bytes = plan.SerializeToString(deterministic=True)
    return data


def test_every_level_has_a_channel_for_each_map_and_for_none() -> None:
    for level in PLAN.levels.values():
        assert list(level.by_map["diagnosis"]) == ["", "mine", "work"]
        assert list(level.by_map["smokes"]) == [""]
        assert len({mechanism.epsilon for mechanism in level.by_map["diagnosis"].values()}) == 1
        assert level.by_map["diagnosis"][""] is level.mechanisms["diagnosis"]


@pytest.mark.parametrize("level", ["strict", "open"])
@pytest.mark.parametrize(("chosen", "sensitive"), [("", VALUES), ("mine", MINE), ("work", WORK)])
def test_a_channel_protects_what_its_map_lists_and_wastes_nothing(
    level: str, chosen: str, sensitive: tuple[str, ...]
) -> None:
    mechanism = PLAN.mechanism(level, "diagnosis", chosen)
    limit = exp_bounds(Fraction(mechanism.epsilon))[0]
    rows, worst = mechanism.channel().rows, Fraction(1)
    for x, y in product(range(len(VALUES)), repeat=2):
        if VALUES[x] in sensitive and x != y:
            for mine, other in zip(rows[x], rows[y], strict=True):
                assert mine <= limit * other
                worst = max(worst, mine / other if mine else worst)
    assert math.log(worst) >= 0.999 * mechanism.epsilon


def test_reports_by_two_maps_protect_what_both_list() -> None:
    pairs = [
        PLAN.mechanism("strict", "diagnosis", name).channel().rows
        for name in PLAN.maps("diagnosis")
    ]
    twice = [[a * b for a, b in product(*rows)] for rows in zip(*pairs, strict=True)]
    limit = exp_bounds(2 * Fraction(PLAN.mechanism("strict", "diagnosis").epsilon))[0]
    protected = set()
    for x, value in enumerate(VALUES):
        others = (row for y, row in enumerate(twice) if y != x)
        if all(p <= limit * q for row in others for p, q in zip(twice[x], row, strict=True)):
            protected.add(value)
    assert protected == set(MINE) & set(WORK)


def test_a_report_names_the_map_in_the_clear_and_nothing_else_changes() -> None:
    sent = {}
    for maps in ({}, {"diagnosis": "mine"}, {"diagnosis": ""}):
        transport = RecordingTransport(FROZEN)
        with client(transport, maps=maps) as device:
            assert device.wait_ready()
            assert device.record(diagnosis="flu", smokes="no").taken == ("diagnosis", "smokes")
            assert device.record_epsilon == 0.5
            assert [each.life for each in device.spendings()] == [0.375, 0.125]
        (batch,) = transport.batches
        sent[maps.get("diagnosis")] = [(column.attribute, column.map) for column in batch.columns]
        assert transport.tally("diagnosis", "strict", maps.get("diagnosis", "")).n == 1
    assert sent[None] == sent[""] == [("diagnosis", ""), ("smokes", "")]
    assert sent["mine"] == [("diagnosis", "mine"), ("smokes", "")]


def test_people_of_different_maps_are_columns_of_one_batch() -> None:
    transport = RecordingTransport(FROZEN)
    with client(transport, maps={"diagnosis": "mine"}) as device:
        assert device.wait_ready()
        own = {"a": None, "b": {"diagnosis": "work"}, "c": {}, "d": {"diagnosis": "work"}}
        for name, maps in own.items():
            person = device.person(name, maps=maps)
            person.grant()
            assert person.level == "strict"  # the client's, as for whoever chooses none
            assert person.record(diagnosis="cancer")
        assert device.flush()
    (batch,) = transport.batches
    rows = {column.map: column.present for column in batch.columns}
    assert {name: bytes(present)[0].bit_count() for name, present in rows.items()} == {
        "": 1,
        "mine": 1,
        "work": 2,
    }


def test_an_agreement_has_the_values_of_each_map() -> None:
    agreed = Agreement.on(FROZEN)
    assert agreed.maps == {"diagnosis": {"mine": MINE, "work": WORK}}
    assert agreed.may_reveal == {}
    transport = RecordingTransport(FROZEN)
    with Client(
        transport,
        agreed,
        ledger=MEMORY,
        level="open",
        maps={"diagnosis": "work"},
        consent=True,
        strict=True,
    ) as device:
        assert device.record(diagnosis="std")
    (batch,) = transport.batches
    assert batch.columns[0].map == "work"


def swap(plan: plan_pb2.Plan) -> None:
    """Give each map's name to the other one, with its channels."""
    maps = plan.survey.attributes[0].categorical.maps
    mine, work = list(maps["mine"].sensitive), list(maps["work"].sensitive)
    maps["mine"].sensitive[:], maps["work"].sensitive[:] = work, mine
    for level in plan.levels:
        one, other = level.mapped
        kept = plan_pb2.Mechanism.FromString(one.SerializeToString())
        level.mapped[0].CopyFrom(other)
        level.mapped[1].CopyFrom(kept)


def test_a_server_that_renames_maps_gets_no_answer() -> None:
    swapped = edited(swap)
    parse(swapped)  # a good plan by itself
    transport = RecordingTransport(swapped)
    with client(transport, strict=False, maps={"diagnosis": "mine"}) as device:
        assert not device.wait_ready(0.5)
        assert "by the map 'mine' may reveal cancer" in device.status().detail
    with pytest.raises(InvalidInput, match=r"maps\['diagnosis'\] is"):
        Agreement.on(FROZEN).check(parse(swapped))


REFUSED: Mapping[str, tuple[Callable[[plan_pb2.Plan], object], str]] = {
    "a channel that protects less than its map": (
        lambda plan: plan.levels[0].mapped[1].CopyFrom(plan.levels[0].mapped[0]),
        "'diagnosis', map 'work': .* keeps another policy",
    ),
    "a map's channel of another epsilon": (
        lambda plan: setattr(plan.levels[0].mapped[0], "epsilon", 0.4),
        "map 'mine': ",
    ),
    "a map's channel of more epsilon than the record has": (
        lambda plan: plan.levels[0].mapped[0].CopyFrom(plan.levels[1].mapped[0]),
        "map 'mine': policy_table has epsilon 1.5, and without a map it is 0.375",
    ),
    "a map without a channel": (
        lambda plan: plan.levels[1].mapped.pop(),
        "level 'open' has 1 mechanisms for 2 maps",
    ),
    "a channel without a map": (
        lambda plan: plan.survey.attributes[0].categorical.maps.pop("work"),
        "level 'strict' has 2 mechanisms for 1 maps",
    ),
    "a map that those get who choose none": (
        lambda plan: plan.survey.attributes[0].categorical.maps[""].sensitive.append("flu"),
        "the name of a map is",
    ),
    "a name that cannot be seen": (
        lambda plan: plan.survey.attributes[0].categorical.maps["\u200b"].sensitive.append("flu"),
        "maps: .* contains U\\+200B",
    ),
}


@pytest.mark.parametrize("attack", REFUSED)
def test_a_plan_whose_maps_are_not_as_they_say_is_refused(attack: str) -> None:
    edit, reason = REFUSED[attack]
    with pytest.raises(InvalidInput, match=reason):
        parse(edited(edit))


def maps(**named: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted(named.items()))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (maps(mine=()), "map 'mine' needs sensitive values"),
        (maps(mine=("mumps",)), "map 'mine': 'mumps' is sensitive"),
        (maps(mine=("flu", "flu")), "map 'mine': 'flu' is in two classes, or twice"),
        (maps(mine=VALUES), "map 'mine' lists all values"),
        (maps(a=("std", "flu"), b=("flu", "std")), "maps 'a' and 'b' list the same values"),
        (
            tuple(
                (f"m{n}", tuple(VALUES[i] for i in range(6) if n + 1 >> i & 1)) for n in range(9)
            ),
            f"there may be {MOST_MAPS} maps, got 9",
        ),
    ],
)
def test_maps_that_say_nothing_or_the_same_are_refused(given: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Categorical(VALUES, maps=given)


def test_maps_exclude_other_declarations_of_the_question() -> None:
    with pytest.raises(InvalidInput, match="sensitive values, classes or maps, one of them"):
        Categorical(VALUES, sensitive=("std",), maps=maps(mine=MINE))
    memo = TOML.replace('name = "diagnosis"', 'name = "diagnosis"\nmemo = 1')
    with pytest.raises(InvalidInput, match="memo is for values that are all protected alike"):
        surveys.resolve(surveys.from_toml(memo, "t"))
    named = TOML.replace("maps.mine", "maps.Mine")
    with pytest.raises(InvalidInput, match="the name of a map is a lower-case letter"):
        surveys.resolve(surveys.from_toml(named, "t"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"maps": {"diagnosis": "yours"}}, "a map of 'diagnosis' must be one of mine, work, got"),
        ({"maps": {"smokes": "mine"}}, "a map of 'smokes' must be left out, got 'mine'"),
        ({"maps": {"income": "mine"}}, "no attribute 'income'"),
        ({"maps": {"diagnosis": "mine"}, "may_reveal": {}}, "may reveal none or cold or flu"),
        (
            {"maps": {"diagnosis": "mine"}, "may_reveal": {"diagnosis": {"work": VALUES}}},
            "may reveal none or cold or flu",
        ),
        ({"may_reveal": {"diagnosis": {"yours": ["flu"]}}}, "must be one of mine, work"),
        ({"may_reveal": {"smokes": {"mine": ["no"]}}}, "must be left out"),
    ],
)
def test_a_choice_that_the_plan_or_the_app_does_not_have_is_refused(
    options: dict[str, Any], reason: str
) -> None:
    transport = RecordingTransport(FROZEN)
    with client(transport, strict=False, **options) as device:
        assert not device.wait_ready(0.5)
        assert reason in device.status().detail
        assert not device.record(diagnosis="none")
    assert transport.batches == []


def test_maps_must_be_names_by_attribute() -> None:
    for given in ("mine", {"diagnosis": ["mine"]}):
        with pytest.raises(InvalidInput, match="maps names a map for each attribute"):
            client(RecordingTransport(FROZEN), maps=given)
    with pytest.raises(InvalidInput, match=r"may_reveal\['diagnosis'\]\['mine'\] must be a list"):
        client(RecordingTransport(FROZEN), may_reveal={"diagnosis": {"mine": "none"}})


def test_what_may_be_revealed_by_any_map_needs_no_map() -> None:
    transport = RecordingTransport(FROZEN)
    allowed = {"diagnosis": ordinary(MINE)}
    with client(transport, maps={"diagnosis": "mine"}, may_reveal=allowed) as device:
        assert device.wait_ready()
        assert device.record(diagnosis="flu")
        person = device.person("b", maps={"diagnosis": "work"})
        person.grant()
        assert "may reveal cancer" in person.status().detail


def test_a_map_that_changes_costs_each_report_and_answers_no_period_twice() -> None:
    transport, calendar = RecordingTransport(FROZEN), Calendar(-3)
    with client(transport, clock=calendar, caps=Caps(life=1.2)) as device:
        assert device.wait_ready()
        for day, chosen in enumerate(("mine", "work", "")):
            person = device.person("a", maps={"diagnosis": chosen})
            person.grant()
            other = device.person("a", maps={"diagnosis": "mine"})
            assert person.record(diagnosis="flu")
            assert other.record(diagnosis="flu").dropped == {"diagnosis": "spent"}
            assert person.spendings()[0].reports == day + 1
            assert person.spendings()[0].maps == ("mine", "work", "")[: day + 1]
            assert person.spendings()[1].maps == ()
            calendar.now += timedelta(days=1)
        assert person.record(diagnosis="flu").dropped == {"diagnosis": "spent"}  # 4 x 0.375 > 1.2
        assert device.flush()
    assert [batch.columns[0].map for batch in transport.batches] == ["mine", "work", ""]


def test_a_map_that_lists_other_values_later_is_told_from_the_earlier_one(tmp_path: Path) -> None:
    ledger, calendar = tmp_path / "ledger.db", Calendar(-3)
    create_ledger(ledger)
    text = TOML.replace(str(list(MINE)), "['cancer', 'allergy']")
    later = surveys.resolve(surveys.from_toml(text, "clinic.toml"))
    for data, chosen, maps, protected in (
        (FROZEN, "mine", ("mine",), MINE),
        (later, "", ("mine", ""), MINE),
        (later, "mine", ("mine", ""), ("cancer",)),
    ):
        given: dict[str, Any] = {"ledger": ledger, "maps": {"diagnosis": chosen}, "clock": calendar}
        with device(RecordingTransport(data), Agreement.on(data), **given) as answering:
            assert answering.record(diagnosis="flu", smokes="no")
            diagnosis, smokes = answering.spendings()
        assert (diagnosis.maps, diagnosis.protected) == (maps, protected)
        assert (smokes.maps, smokes.protected) == ((), ())
        (shown,) = ledger_file.read(ledger).surveys
        assert (shown.maps, shown.protected) == ({"diagnosis": maps}, {"diagnosis": protected})
        calendar.pass_days(1)


def test_of_a_map_that_is_kept_by_its_name_only_nothing_is_known_to_be_protected() -> None:
    domain = PLAN.attributes["diagnosis"].domain
    for kept, protected in (([""], VALUES), (["mine"], ()), (["", ["mine", ["std"]]], ("std",))):
        mine = {"period": "", "life": {}, "calls": {}, "spent": {}, "maps": {"diagnosis": kept}}
        assert Account(json.dumps({"clinic": mine}), "clinic").protected("diagnosis", domain) == (
            protected
        )


def test_an_attribute_of_a_view_has_no_maps() -> None:
    together = TOML.replace('name = "clinic"', 'name = "clinic"\nviews = [["diagnosis", "smokes"]]')
    with pytest.raises(InvalidInput, match="'diagnosis' has maps, and a view has none"):
        surveys.resolve(surveys.from_toml(together, "t"))
