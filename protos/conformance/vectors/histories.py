"""Histories of a device: what happens, and what must follow by docs/wire-ledger.md.

What follows is written by hand here, not computed by a client.
"""

from datetime import UTC, datetime
from typing import Any

from hearsay.plans.plan import mechanism_message
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import Mechanism
from ldp import mechanisms as m
from ldp.core.exact import ONE
from vectors.notation import double

Case = dict[str, Any]


def _plan(
    survey: str,
    period: str,
    levels: dict[str, float],
    questions: dict[str, Any],
    *,
    title: str = "",
    chances: tuple[int, ...] = (),
    memo: float = 0.0,
    words: bool = False,
    maps: dict[str, str] | None = None,
    panels: int = 0,
    properties: dict[str, str] | None = None,
    shares: dict[str, tuple[float, ...]] | None = None,
    caps: dict[str, float] | None = None,
) -> str:
    """Return a plan's bytes: `questions` makes the mechanism of each, of three values.

    `shares` are the epsilons of the questions by level, which are equal without; `caps` are by
    attribute.

    With `words` the attributes are words of one of these letters.

    `maps` are those of the first question: name to its sensitive values, as "ab"; `properties`
    have their values as "ab", too.
    A question such as "x+y" is a view of attributes of three values each.
    """
    wire = survey_pb2.Survey(name=survey, title=title, period=period, levels=levels)
    wire.views.extend(survey_pb2.View(attributes=q.split("+")) for q in questions if "+" in q)
    for name in dict.fromkeys(part for question in questions for part in question.split("+")):
        attribute = wire.attributes.add(name=name, memo=memo)
        if words:
            attribute.strings.alphabet, attribute.strings.longest = "abc", 1
            attribute.strings.candidates.extend("ab")
        else:
            attribute.categorical.values.extend(["a", "b", "c"])
        if name in (caps or {}):
            attribute.cap = (caps or {})[name]
    for name, sensitive in (maps or {}).items():
        wire.attributes[0].categorical.maps[name].sensitive.extend(sensitive)
    wire.panels = panels
    for name, listed in (properties or {}).items():
        wire.properties.add(name=name, values=list(listed))
    plan = plan_pb2.Plan(survey=wire)
    for name, epsilon in sorted(levels.items(), key=lambda item: (item[1], item[0])):
        level = plan.levels.add(name=name, epsilon=epsilon, chances=chances)
        share = epsilon if chances else epsilon / len(questions)
        each = (shares or {}).get(name, (share,) * len(questions))
        for make, own in zip(questions.values(), each, strict=True):
            level.mechanisms.add().CopyFrom(mechanism_message(make(own)))
        for _, sensitive in sorted((maps or {}).items()):
            made = m.PolicyUnary.utility_optimised(3, ["abc".index(v) for v in sensitive], share)
            level.mapped.add().CopyFrom(mechanism_message(made))
    return plan.SerializeToString(deterministic=True).hex()


def _krr(epsilon: float) -> Mechanism:
    return m.KRR(3, epsilon)


def _krr_of_pairs(epsilon: float) -> Mechanism:
    return m.KRR(9, epsilon)


def _chain(epsilon: float) -> Mechanism:
    return m.KRRChain.calibrate(3, epsilon, 2 * epsilon)


def _rappor(epsilon: float) -> Mechanism:
    made = m.RAPPOR.calibrate(epsilon, 2 * epsilon, bits=128, hashes=2, cohorts=16)
    # Each letter has a memo of its own, in every cohort.
    assert all(len({made.positions(cohort, x) for x in "abc"}) == 3 for cohort in range(16))
    return made


_TWO = {"x": _krr, "y": _krr}
_PAIRS = {"x+y": _krr_of_pairs, "x+z": _krr_of_pairs}
_VIEWS = {"w": _krr, **_PAIRS}
_LEVELS = {"strict": 1.0, "open": 4.0}
_THIRD = ONE // 3

_PLANS = {
    "daily": _plan("daily", "P1D", _LEVELS, _TWO),
    "daily again": _plan("daily", "P1D", _LEVELS, _TWO, title="Another title"),
    "hourly": _plan("hourly", "PT1H", _LEVELS, _TWO),
    "weekly": _plan("weekly", "P1W", _LEVELS, _TWO),
    "monthly": _plan("monthly", "P1M", _LEVELS, _TWO),
    "yearly": _plan("yearly", "P1Y", _LEVELS, _TWO),
    "once": _plan("once", "", _LEVELS, _TWO),
    "tenth": _plan("tenth", "P1D", {"strict": 0.1}, {"x": _krr}),
    "sampled": _plan(
        "sampled",
        "P1D",
        _LEVELS,
        {"x": _krr, "y": _krr, "z": _krr},
        chances=(_THIRD, _THIRD, ONE - 2 * _THIRD),
    ),
    "memos": _plan("memos", "P1D", {"strict": 1.0}, {"x": _chain}, memo=2.5),
    "words": _plan("words", "P1D", {"strict": 1.0}, {"x": _rappor}, memo=2.5, words=True),
    "views": _plan("views", "P1D", {"strict": 1.5, "open": 4.5}, _VIEWS),
    "drawn": _plan("drawn", "P1D", _LEVELS, _PAIRS, chances=(ONE // 2, ONE // 2)),
    "kept": _plan("kept", "P1D", {"strict": 1.0}, {"x": _krr}, memo=1.0),
    "mapped": _plan("mapped", "P1D", _LEVELS, _TWO, maps={"first": "ab", "last": "bc"}),
    "regrouped apart": _plan("regrouped", "P1D", {"strict": 1.0}, {"x": _krr, "y": _krr}),
    "regrouped together": _plan("regrouped", "P1D", {"strict": 1.0}, {"x+y": _krr_of_pairs}),
    "regrouped otherwise": _plan(
        "regrouped", "P1D", {"strict": 1.0}, {"y": _krr, "x+z": _krr_of_pairs}
    ),
    "public": _plan(
        "public", "P1D", _LEVELS, _TWO, panels=64, properties={"system": "ab", "version": "12"}
    ),
    "public in other panels": _plan(
        "public", "P1D", _LEVELS, _TWO, panels=63, properties={"system": "ab", "version": "12"}
    ),
    # The views' shares cross: 0.75 of the cap of x each, at different levels.
    "crossed": _plan(
        "crossed",
        "P1D",
        {"strict": 1.5, "open": 3.0},
        _VIEWS,
        shares={"strict": (0.5, 0.75, 0.125), "open": (2.0, 0.125, 0.75)},
        caps={"x": 1.0},
    ),
    "crossed without a cap": _plan(
        "crossed",
        "P1D",
        {"strict": 1.5, "open": 3.0},
        _VIEWS,
        shares={"strict": (0.5, 0.75, 0.125), "open": (2.0, 0.125, 0.75)},
    ),
}
_INDEX = {name: index for index, name in enumerate(_PLANS)}

_HOUR = 3_600_000
_DAY = 24 * _HOUR


def _ms(year: int, month: int, day: int, hour: int = 12, minute: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()) * 1000


_NOON = _ms(2026, 7, 4)


# --- events -------------------------------------------------------------------------------------


def _grant(person: str = "") -> Case:
    return {"do": "grant", "person": person}


def _revoke(person: str = "", *, forget: bool = False) -> Case:
    return {"do": "revoke", "person": person, "forget": forget}


def _fetch(plan: str, time: int | None = None) -> Case:
    return {"do": "fetch", "plan": _INDEX[plan], "server_time": time}


def _clock(time: int) -> Case:
    return {"do": "clock", "time": time}


def _record(
    person: str = "", *, invalid: str = "", dropped: Case | None = None, **answers: str
) -> Case:
    """Record answers: all that are not dropped are taken."""
    left_out = dropped or {}
    return {
        "do": "record",
        "person": person,
        "answers": answers,
        "taken": sorted(set(answers) - set(left_out)),
        "dropped": left_out,
        "invalid": sorted(invalid.split()),
    }


def _refused(reason: str, person: str = "") -> Case:
    """Record an answer to each question of two, none of which is taken."""
    return _record(person, x="a", y="b", dropped={"x": reason, "y": reason})


def _one_refused(reason: str) -> Case:
    return _record(x="a", dropped={"x": reason})


def _sampled(counts: dict[str, int]) -> Case:
    """Record an answer to each question of three, of which an unknown one was drawn."""
    return {
        "do": "record",
        "person": "",
        "answers": {"x": "a", "y": "b", "z": "c"},
        "counts": counts,
    }


def _restart(**options: Any) -> Case:
    return {"do": "restart", "options": options}


def _lose() -> Case:
    return {"do": "lose"}


def _batch(
    plan: str, period: str, rows: int, columns: Case, *, again: bool = False, **public: Any
) -> Case:
    """A batch: `columns` has the rows of each attribute and level, as "x/strict", or of these and
    a map, as "x/strict/mine". `public` are the panel and the properties, where it has them."""
    listed = []
    for name, count in sorted(columns.items()):
        attribute, level, *chosen = name.split("/")
        listed.append([attribute, level, count, *chosen])
    found = {"plan": _INDEX[plan], "period": period, "rows": rows, "columns": listed}
    return {**found, "again": again, **public}


def _send(*offered: Case, answer: str = "stored", left: int = 0) -> Case:
    return {"do": "send", "answer": answer, "offered": list(offered), "left": left}


def _forgets(count: int) -> Case:
    return {"do": "forgets", "ids": count}


def _spent(reports: int, life: float, attribute: str = "x") -> Case:
    return {"do": "spent", "attribute": attribute, "reports": reports, "life": double(life)}


_BOTH = {"x/strict": 1, "y/strict": 1}


def _beginning(plan: str = "daily", time: int | None = _NOON) -> list[Case]:
    return [_grant(), _fetch(plan, time)]


def _history(note: str, *events: Case, plan: str = "daily", **settings: Any) -> Case:
    start = settings.pop("start", _NOON)
    vouched = settings.pop("vouched", True)
    return {
        "note": note,
        "survey": plan.split()[0],
        "vouched": vouched,
        "start": start,
        "options": settings,
        "events": list(events),
    }


# --- histories ----------------------------------------------------------------------------------


def _of_one_period() -> list[Case]:
    return [
        _history(
            "an attribute is reported once in a period",
            *_beginning(),
            _record(x="a", y="b"),
            _refused("spent"),
            _send(_batch("daily", "2026-07-04", 1, _BOTH)),
            _refused("spent"),
            _send(),
        ),
        _history(
            "an attribute that was not answered may be answered later in the period",
            *_beginning(),
            _record(x="a"),
            _record(x="a", y="b", dropped={"x": "spent"}),
            _send(_batch("daily", "2026-07-04", 2, {"x/strict": 1, "y/strict": 1})),
        ),
        _history(
            "a restart does not begin the period anew",
            *_beginning(),
            _record(x="a"),
            _restart(),
            _record(x="b", y="b", dropped={"x": "spent"}),
            _restart(),
            _refused("spent"),
            _send(_batch("daily", "2026-07-04", 2, {"x/strict": 1, "y/strict": 1})),
        ),
        _history(
            "the next period is a new one",
            *_beginning(),
            _record(x="a", y="b"),
            _clock(_NOON + _DAY),
            _record(x="a", y="b"),
            _send(_batch("daily", "2026-07-04", 1, _BOTH), _batch("daily", "2026-07-05", 1, _BOTH)),
        ),
        _history(
            "the last moment of a period belongs to it, and the next to the next",
            *_beginning(),
            _clock(_ms(2026, 7, 5, 0) - 1),
            _record(x="a", y="b"),
            _clock(_ms(2026, 7, 5, 0)),
            _record(x="a", y="b"),
            _send(_batch("daily", "2026-07-04", 1, _BOTH), _batch("daily", "2026-07-05", 1, _BOTH)),
        ),
        _history(
            "unknown and withheld attributes, and answers outside the domain",
            *_beginning(),
            _record(
                x="no such value",
                y="b",
                w="a",
                invalid="x",
                dropped={"w": "unknown", "y": "withheld"},
            ),
            _send(_batch("daily", "2026-07-04", 1, {"x/strict": 1})),
            withhold=["y"],
        ),
        _history(
            "a looser level in the same period adds no more than its epsilon",
            *_beginning(),
            _record(x="a"),
            _restart(level="open"),
            _record(x="a", y="b", dropped={"x": "spent"}),
            _send(_batch("daily", "2026-07-04", 2, {"x/strict": 1, "y/open": 1})),
        ),
        _history(
            "a stricter level in the same period takes nothing where too much is spent",
            *_beginning(),
            _record(x="a"),
            _restart(level="strict"),
            _record(y="b", dropped={"y": "spent"}),
            _clock(_NOON + _DAY),
            _record(x="a", y="b"),
            _send(
                _batch("daily", "2026-07-04", 1, {"x/open": 1}),
                _batch("daily", "2026-07-05", 1, _BOTH),
            ),
            level="open",
        ),
        _history(
            "one attribute is drawn of three, and stays drawn after a restart",
            *_beginning("sampled"),
            _sampled({"taken": 1, "idle": 2}),
            _sampled({"spent": 1, "idle": 2}),
            _restart(),
            _sampled({"spent": 1, "idle": 2}),
            _restart(level="open"),
            _sampled({"spent": 1, "idle": 2}),
            _clock(_NOON + _DAY),
            _sampled({"taken": 1, "idle": 2}),
            plan="sampled",
        ),
        _history(
            "a survey without a period is answered once",
            *_beginning("once"),
            _record(x="a"),
            _clock(_NOON + 400 * _DAY),
            _record(x="a", y="b", dropped={"x": "spent"}),
            _restart(),
            _refused("spent"),
            _send(_batch("once", "once", 2, {"x/strict": 1, "y/strict": 1})),
            plan="once",
        ),
    ]


def _of_periods() -> list[Case]:
    found = []
    for unit, before, after, names in (
        (
            "hourly",
            _ms(2026, 12, 31, 23, 59),
            _ms(2027, 1, 1, 0),
            ("2026-12-31T23", "2027-01-01T00"),
        ),
        ("weekly", _ms(2027, 1, 3, 23, 59), _ms(2027, 1, 4, 0), ("2026-W53", "2027-W01")),
        ("monthly", _ms(2028, 2, 29), _ms(2028, 3, 1, 0), ("2028-02", "2028-03")),
        ("yearly", _ms(2026, 12, 31, 23, 59), _ms(2027, 1, 1, 0), ("2026", "2027")),
    ):
        found.append(
            _history(
                f"a survey that is answered {unit}",
                *_beginning(unit, before),
                _record(x="a", y="b"),
                _refused("spent"),
                _clock(after),
                _record(x="a", y="b"),
                _send(*(_batch(unit, name, 1, _BOTH) for name in names)),
                plan=unit,
                start=before,
            )
        )
    return found


def _of_plans() -> list[Case]:
    return [
        _history(
            "without a plan nothing is taken",
            _grant(),
            _refused("no_plan"),
            _fetch("daily", _NOON),
            _record(x="a", y="b"),
        ),
        _history(
            "the first plan stays, whatever the server sends later",
            *_beginning(),
            _record(x="a"),
            _fetch("daily again", _NOON),
            _record(y="b"),
            _restart(),
            _fetch("daily again", _NOON),
            _refused("spent"),
            _clock(_NOON + _DAY),
            _record(x="a", y="b"),
            _send(
                _batch("daily", "2026-07-04", 2, {"x/strict": 1, "y/strict": 1}),
                _batch("daily", "2026-07-05", 1, _BOTH),
            ),
        ),
        _history(
            "a plan that spends more than was agreed to is refused",
            *_beginning(),
            _refused("plan_refused"),
            _restart(level="strict"),
            _fetch("daily", _NOON),
            _record(x="a", y="b"),
            level="open",
            epsilon=double(3.99),
        ),
        _history(
            "an app that ships another revision takes it, but not in a period that was answered",
            *_beginning(),
            _record(x="a"),
            _restart(revision=_INDEX["daily again"]),
            _fetch("daily again", _NOON),
            _refused("plan_changed"),
            _clock(_NOON + _DAY),
            _record(x="a", y="b"),
            _send(_batch("daily again", "2026-07-05", 1, _BOTH)),  # nothing of the plan before
        ),
        _history(
            "an app that ships a revision refuses every other plan",
            *_beginning("daily again"),
            _refused("plan_refused"),
            _fetch("daily", _NOON),
            _record(x="a", y="b"),
            revision=_INDEX["daily"],
        ),
        _history(
            "memos need the app's agreement",
            *_beginning("memos"),
            _one_refused("plan_refused"),
            plan="memos",
        ),
    ]


_FIRST = {"maps": {"x": "first"}, "may_reveal": {"x": {"first": ["c"], "last": ["a"]}}}
_LAST = {**_FIRST, "maps": {"x": "last"}}


def _of_maps() -> list[Case]:
    return [
        _history(
            "a map is sent beside the answer, and nothing else changes",
            *_beginning("mapped"),
            _record(x="c", y="b"),
            _refused("spent"),
            _spent(1, 0.5),
            _send(_batch("mapped", "2026-07-04", 1, {"x/strict/first": 1, "y/strict": 1})),
            plan="mapped",
            **_FIRST,
        ),
        _history(
            "without a map none is sent, and no answer may be revealed",
            *_beginning("mapped"),
            _record(x="c", y="b"),
            _send(_batch("mapped", "2026-07-04", 1, {"x/strict": 1, "y/strict": 1})),
            plan="mapped",
        ),
        _history(
            "another map answers no period again, and the next one as any other",
            *_beginning("mapped"),
            _record(x="c"),
            _restart(**_LAST),
            _record(x="c", y="b", dropped={"x": "spent"}),
            _clock(_NOON + _DAY),
            _record(x="c"),
            _restart(maps={}),
            _record(x="a", dropped={"x": "spent"}),
            _spent(2, 1.0),
            _send(
                _batch("mapped", "2026-07-04", 2, {"x/strict/first": 1, "y/strict": 1}),
                _batch("mapped", "2026-07-05", 1, {"x/strict/last": 1}),
            ),
            plan="mapped",
            **_FIRST,
        ),
        _history(
            "an answer outside the domain is sent by the map, too",
            *_beginning("mapped"),
            _record(x="no such value", invalid="x"),
            _send(_batch("mapped", "2026-07-04", 1, {"x/strict/last": 1})),
            plan="mapped",
            **_LAST,
        ),
        _history(
            "a map needs the app's agreement to what it may reveal",
            *_beginning("mapped"),
            _refused("plan_refused"),
            _restart(may_reveal={"x": {"last": ["a", "c"]}}),
            _fetch("mapped", _NOON),
            _refused("plan_refused"),
            _restart(may_reveal={"x": {"first": ["c"]}}),
            _fetch("mapped", _NOON),
            _record(x="a", y="b"),
            plan="mapped",
            maps={"x": "first"},
        ),
        _history(
            "what any map may reveal holds for each",
            *_beginning("mapped"),
            _record(x="a", y="b"),
            plan="mapped",
            maps={"x": "first"},
            may_reveal={"x": ["c"]},
        ),
        _history(
            "a map that the survey lacks is refused",
            *_beginning("mapped"),
            _refused("plan_refused"),
            plan="mapped",
            **{**_FIRST, "maps": {"x": "other"}},
        ),
        _history(
            "a map of an attribute without maps is refused",
            *_beginning("mapped"),
            _refused("plan_refused"),
            plan="mapped",
            **{**_FIRST, "maps": {"y": "first"}},
        ),
    ]


def _of_clocks() -> list[Case]:
    midnight = _ms(2026, 7, 5, 0)
    gaps = [_clock_and_record(_NOON + 2 * n * _DAY) for n in range(34)]
    end = _NOON + 66 * _DAY
    return [
        _history(
            "a period that begins a day after the server's time, and one that begins later",
            *_beginning(time=midnight - _DAY + 5000),
            _clock(midnight + _HOUR),
            _record(x="a", y="b"),
            _clock(midnight + _DAY + _HOUR),
            _refused("clock"),
            _fetch("daily", midnight + 60_000),
            _record(x="a", y="b"),
        ),
        _history(
            "a clock far ahead, put right",
            *_beginning(),
            _clock(_NOON + 365 * _DAY),
            _refused("clock"),
            _restart(),
            _refused("clock"),
            _clock(_NOON),
            _record(x="a", y="b"),
        ),
        _history(
            "while the server's time is not known any period may be entered",
            *_beginning(time=None),
            _clock(_NOON + 365 * _DAY),
            _record(x="a", y="b"),
            _clock(_NOON),
            _refused("clock"),
            _fetch("daily", _NOON),
            _record(x="a", y="b"),
            _clock(_NOON + 365 * _DAY),
            _refused("clock"),
        ),
        _history(
            "a period that was answered and left is not answered again",
            *_beginning(),
            _record(x="a"),
            _clock(_NOON + _DAY),
            _record(x="a"),
            _clock(_NOON),
            _refused("clock"),
            _fetch("daily", _NOON),
            _refused("clock"),
            _restart(),
            _refused("clock"),
            _clock(_NOON + _DAY),
            _record(y="b"),
        ),
        _history(
            "a clock that is put back over a period that was not answered",
            *_beginning(),
            _clock(_NOON + _DAY),
            _record(x="a", y="b"),
            # The server confirms a period that ended less than a day before its time.
            _fetch("daily", midnight + _DAY + 60_000),
            _clock(_NOON),
            _refused("clock"),
            _fetch("daily", midnight + _DAY - 60_000),
            _record(x="a", y="b"),
        ),
        _history(
            "a period that begins a minute more than a day after the server's time",
            *_beginning(time=midnight - _DAY - 60_000),
            _clock(midnight + _HOUR),
            _refused("clock"),
            _fetch("daily", midnight - _DAY),
            _record(x="a", y="b"),
        ),
        _history(
            "32 stretches of answered periods are remembered; the earliest are joined",
            *_beginning(time=end),
            *(event for pair in gaps for event in pair),
            _fetch("daily", _NOON + _DAY),
            _clock(_NOON + _DAY),
            _refused("clock"),
            _clock(_NOON + 3 * _DAY),
            _refused("clock"),
            _fetch("daily", _NOON + 5 * _DAY),
            _clock(_NOON + 5 * _DAY),
            _record(x="a", y="b"),
        ),
    ]


def _clock_and_record(time: int) -> tuple[Case, Case]:
    return _clock(time), _record(x="a", y="b")


def _of_ledgers() -> list[Case]:
    midnight = _ms(2026, 7, 5, 0)
    return [
        _history(
            "a ledger that nobody vouches for takes nothing before a new period",
            *_beginning(time=None),
            _refused("new_ledger"),
            _clock(_NOON + _DAY),
            _refused("new_ledger"),
            _fetch("daily", _NOON + _DAY),
            _refused("new_ledger"),
            # It begins twelve hours after the ledger was made: an earlier one may have entered it.
            _clock(_NOON + 2 * _DAY),
            _refused("new_ledger"),
            _fetch("daily", _NOON + 3 * _DAY),
            _clock(_NOON + 3 * _DAY),
            _record(x="a", y="b"),
            vouched=False,
        ),
        _history(
            "a ledger is as young as the server says, where that is later",
            *_beginning(time=_ms(2026, 7, 5, 1)),
            _refused("new_ledger"),
            _clock(_ms(2026, 7, 5, 2)),
            _refused("new_ledger"),
            # More than a day after the clock's time of then, and less than one after the server's.
            _clock(_ms(2026, 7, 6, 0)),
            _refused("new_ledger"),
            _fetch("daily", _ms(2026, 7, 6, 23)),
            _clock(_ms(2026, 7, 7, 0)),
            _record(x="a", y="b"),
            vouched=False,
            start=_ms(2026, 7, 4, 23),
        ),
        _history(
            "a lost ledger is a new one",
            *_beginning(),
            _record(x="a"),
            _lose(),
            _grant(),
            _fetch("daily", _NOON),
            _refused("new_ledger"),
            _clock(_NOON + _DAY),
            _refused("new_ledger"),
            _fetch("daily", _NOON + 2 * _DAY),
            _clock(_NOON + 2 * _DAY),
            _record(x="a", y="b"),
            _send(_batch("daily", "2026-07-06", 1, _BOTH)),
        ),
        _history(
            "a period that a clock ahead had answered is not answered again by a new ledger",
            *_beginning(),
            _clock(_ms(2026, 7, 5, 0)),
            _record(x="a", y="b"),
            _send(_batch("daily", "2026-07-05", 1, _BOTH)),
            _lose(),
            _clock(_NOON),
            _grant(),
            _fetch("daily", _NOON),
            _refused("new_ledger"),
            _fetch("daily", _NOON + _DAY),
            _clock(_NOON + _DAY),
            _refused("new_ledger"),
            _fetch("daily", _NOON + 2 * _DAY),
            _clock(_NOON + 2 * _DAY),
            _record(x="a", y="b"),
            _send(_batch("daily", "2026-07-06", 1, _BOTH)),
        ),
        _history(
            "a period that begins exactly a day after a new ledger was made is not taken",
            *_beginning(time=midnight - _HOUR),
            _refused("new_ledger"),
            _fetch("daily", midnight + _DAY),
            _clock(midnight + _DAY),
            _refused("new_ledger"),
            _fetch("daily", midnight + 2 * _DAY),
            _clock(midnight + 2 * _DAY),
            _record(x="a", y="b"),
            vouched=False,
            start=midnight,
        ),
        _history(
            "a period that begins a millisecond later than that is taken",
            *_beginning(time=midnight - _HOUR),
            _refused("new_ledger"),
            _fetch("daily", midnight + _DAY),
            _clock(midnight + _DAY),
            _record(x="a", y="b"),
            vouched=False,
            start=midnight - 1,
        ),
        _history(
            "a new ledger of an hourly survey waits for a day as well",
            *_beginning("hourly", _NOON),
            _refused("new_ledger"),
            _clock(_NOON + 2 * _HOUR),
            _refused("new_ledger"),
            _fetch("hourly", _NOON + _DAY + _HOUR // 2),
            _clock(_NOON + _DAY + _HOUR // 2),
            _refused("new_ledger"),
            _clock(_NOON + _DAY + _HOUR),
            _record(x="a", y="b"),
            plan="hourly",
            vouched=False,
            start=_NOON + _HOUR // 2,
        ),
        _history(
            "a survey without a period is not answered from a new ledger",
            *_beginning("once"),
            _refused("lost_ledger"),
            _clock(_NOON + 400 * _DAY),
            _refused("lost_ledger"),
            plan="once",
            vouched=False,
        ),
        _history(
            "memos are not drawn again",
            *_beginning("memos"),
            _clock(_NOON + 2 * _DAY),
            _fetch("memos", _NOON + 2 * _DAY),
            _one_refused("lost_ledger"),
            plan="memos",
            vouched=False,
            may_tell_changes=["x"],
        ),
        _history(
            "a cap for life needs a ledger that knows it",
            *_beginning(),
            _clock(_NOON + 2 * _DAY),
            _fetch("daily", _NOON + 2 * _DAY),
            _refused("lost_ledger"),
            _restart(caps={}),
            _fetch("daily", _NOON + 4 * _DAY),
            _clock(_NOON + 4 * _DAY),
            _record(x="a", y="b"),
            vouched=False,
            caps={"life": double(10.0)},
        ),
    ]


def _days(count: int, *events: Case) -> list[Case]:
    """Return the events of so many days, beginning today, one a day."""
    found = []
    for day, event in enumerate(events[:count]):
        found += [_clock(_NOON + day * _DAY), _fetch("tenth", _NOON + day * _DAY), event]
    return found


def _revised(plan: str, day: int) -> list[Case]:
    """Return the events of a day whose app ships another revision."""
    time = _NOON + day * _DAY
    return [_clock(time), _restart(revision=_INDEX[plan]), _fetch(plan, time)]


def _of_caps() -> list[Case]:
    taken, spent = _record(x="a"), _one_refused("spent")
    return [
        _history(
            "three tenths are more than 0.3",
            *_beginning("tenth"),
            *_days(4, taken, taken, spent, spent),
            _spent(2, 0.2),
            plan="tenth",
            caps={"life": double(0.3)},
        ),
        _history(
            "ten tenths are more than 1, though sums of doubles say they are not",
            *_beginning("tenth"),
            *_days(10, *[taken] * 9, spent),
            plan="tenth",
            caps={"life": double(1.0)},
        ),
        _history(
            "a cap that is the next larger double allows them",
            *_beginning("tenth"),
            *_days(4, taken, taken, taken, spent),
            plan="tenth",
            caps={"life": double(0.1 + 0.2)},
        ),
        _history(
            "a cap for life of one attribute",
            *_beginning(),
            _record(x="a", y="b"),
            _clock(_NOON + _DAY),
            _record(x="a", y="b", dropped={"x": "spent"}),
            _send(
                _batch("daily", "2026-07-04", 1, _BOTH),
                _batch("daily", "2026-07-05", 1, {"y/strict": 1}),
            ),
            caps={"attribute_life": {"x": double(0.75)}},
        ),
        _history(
            "a cap for life of an attribute goes on where another revision asks it in another view",
            *_beginning("regrouped apart"),
            _record(x="a", y="b"),
            *_revised("regrouped together", 1),
            _record(x="a", y="b"),
            _spent(2, 1.5),
            *_revised("regrouped together", 2),
            _refused("spent"),
            *_revised("regrouped otherwise", 3),
            _record(x="a", y="b", z="c", dropped={"x": "spent", "z": "spent"}),
            _spent(2, 1.5),
            _spent(3, 2.0, "y"),
            _spent(0, 0.0, "z"),
            *_revised("regrouped apart", 4),
            _record(x="a", y="b", dropped={"x": "spent"}),
            _spent(4, 2.5, "y"),
            plan="regrouped apart",
            revision=_INDEX["regrouped apart"],
            caps={"attribute_life": {"x": double(1.75)}},
        ),
        _history(
            "a cap of 0",
            *_beginning(),
            _refused("spent"),
            caps={"life": double(0.0)},
        ),
        _history(
            "a cap for one report that the level exceeds",
            *_beginning(),
            _refused("plan_refused"),
            _restart(level="strict"),
            _fetch("daily", _NOON),
            _record(x="a", y="b"),
            level="open",
            caps={"attribute": {"x": double(1.0)}},
        ),
        _history(
            "a pace spreads the cap over its days",
            # From the first answer to the end of 2026-07-14: ten days and a half, for 1.06.
            *_beginning("tenth"),
            *_days(4, taken, taken, taken, taken),
            plan="tenth",
            caps={"life": double(1.06), "until": "2026-07-14"},
        ),
        _history(
            "a pace that is slower than the answers",
            # 0.21 in ten days and a half: a tenth takes five days.
            *_beginning("tenth"),
            *_days(6, taken, spent, spent, spent, spent, spent),
            _clock(_NOON + 6 * _DAY),
            _fetch("tenth", _NOON + 6 * _DAY),
            taken,
            plan="tenth",
            caps={"life": double(0.21), "until": "2026-07-14"},
        ),
    ]


def _of_memos() -> list[Case]:
    def answers(*values: str, plan: str = "memos") -> list[Case]:
        found = []
        for day, value in enumerate(values):
            found += [
                _clock(_NOON + day * _DAY),
                _fetch(plan, _NOON + day * _DAY),
                _record(x=value, invalid="" if value in "abc" else "x"),
            ]
        return found

    memo = m.KRRChain.calibrate(3, 1.0, 2.0).memo_epsilon
    of_word = m.RAPPOR.calibrate(1.0, 2.0, bits=128, hashes=2, cohorts=16).memo_epsilon
    return [
        _history(
            "an answer that stays costs one memo",
            *_beginning("memos"),
            *answers("a", "a", "a"),
            _restart(),
            _spent(1, memo),
            plan="memos",
            may_tell_changes=["x"],
        ),
        _history(
            "a new answer costs another memo, and an old one nothing",
            *_beginning("memos"),
            *answers("a", "b", "a", "b"),
            _spent(2, 2 * memo),
            plan="memos",
            may_tell_changes=["x"],
        ),
        _history(
            "an answer outside the domain costs nothing",
            *_beginning("memos"),
            *answers("none", "none", "a", "none"),
            _spent(1, memo),
            plan="memos",
            may_tell_changes=["x"],
        ),
        _history(
            "beyond the cap for life a new answer is reported by a random value's memo",
            *_beginning("memos"),
            *answers("a", "b", "c", "b", "a"),
            _spent(1, memo),
            _send(*(_batch("memos", f"2026-07-0{day}", 1, {"x/strict": 1}) for day in range(4, 9))),
            plan="memos",
            may_tell_changes=["x"],
            caps={"life": double(3.0)},
        ),
        _history(
            "a word that stays costs one memo, a new one another, and none nothing",
            *_beginning("words"),
            *answers("a", "b", "none", "a", "b", plan="words"),
            _restart(),
            _spent(2, 2 * of_word),
            plan="words",
            may_tell_changes=["x"],
        ),
        _history(
            "beyond the cap for life a new word is reported by a random word's memo",
            *_beginning("words"),
            *answers("a", "b", "c", "b", "a", plan="words"),
            _spent(1, of_word),
            _send(*(_batch("words", f"2026-07-0{day}", 1, {"x/strict": 1}) for day in range(4, 9))),
            plan="words",
            may_tell_changes=["x"],
            caps={"life": double(3.0)},
        ),
        _history(
            "a cap below one memo takes nothing",
            *_beginning("memos"),
            _one_refused("spent"),
            plan="memos",
            may_tell_changes=["x"],
            caps={"attribute_life": {"x": double(1.5)}},
        ),
        _history(
            "a mechanism without rounds reports its memo",
            *_beginning("kept"),
            _record(x="a"),
            _clock(_NOON + _DAY),
            _record(x="a"),
            _clock(_NOON + 2 * _DAY),
            _fetch("kept", _NOON + 2 * _DAY),
            _record(x="b"),
            _spent(2, 2 * m.KRR(3, 1.0).realised_epsilon),
            {
                **_send(*(_batch("kept", f"2026-07-0{d}", 1, {"x/strict": 1}) for d in (4, 5, 6))),
                "alike": [[0, 1]],
            },
            plan="kept",
            may_tell_changes=["x"],
        ),
    ]


def _of_sending() -> list[Case]:
    first = _batch("daily", "2026-07-04", 1, _BOTH)
    again = {**first, "again": True}
    retried = [
        _history(
            f"a batch that is answered {answer} goes again with the same id and bytes",
            *_beginning(),
            _record(x="a", y="b"),
            _send(first, answer=answer, left=1),
            _clock(_NOON + _DAY),
            _restart(),
            _record(x="a", y="b"),
            _send(again, _batch("daily", "2026-07-05", 1, _BOTH)),
            _send(),
        )
        for answer in ("unreachable", "retry")
    ]
    final = [
        _history(
            f"a batch that is answered {answer} is done",
            *_beginning(),
            _record(x="a", y="b"),
            _send(first, answer=answer),
            _send(),
        )
        for answer in ("duplicate", "refused")
    ]
    return [
        *retried,
        *final,
        _history(
            "the queue drops the oldest",
            *_beginning(),
            _record(x="a", y="b"),
            _clock(_NOON + _DAY),
            _record(x="a", y="b"),
            _clock(_NOON + 2 * _DAY),
            _fetch("daily", _NOON + 2 * _DAY),
            _record(x="a"),
            _send(
                _batch("daily", "2026-07-05", 1, _BOTH),
                _batch("daily", "2026-07-06", 1, {"x/strict": 1}),
            ),
            max_reports=2,
        ),
        _history(
            "reports of one period go together, whoever made them",
            *_beginning(),
            _grant("ann"),
            _grant("bob"),
            _record(x="a", y="b"),
            _record("ann", x="b"),
            _record("bob", x="c", y="c"),
            _refused("spent", "bob"),
            _send(_batch("daily", "2026-07-04", 3, {"x/strict": 3, "y/strict": 2})),
        ),
    ]


def _of_consent() -> list[Case]:
    first = _batch("daily", "2026-07-04", 1, _BOTH)
    return [
        _history(
            "without consent nothing is taken",
            _fetch("daily", _NOON),
            _refused("no_consent"),
            _grant(),
            _record(x="a", y="b"),
        ),
        _history(
            "who revokes is not sent, and a new grant brings nothing back",
            *_beginning(),
            _record(x="a"),
            _revoke(),
            _refused("no_consent"),
            _send(),
            _grant(),
            _record(x="a", y="b", dropped={"x": "spent"}),
            _send(_batch("daily", "2026-07-04", 1, {"y/strict": 1})),
        ),
        _history(
            "a revocation outlives a restart",
            *_beginning(),
            _revoke(),
            _restart(),
            _refused("no_consent"),
        ),
        _history(
            "who revokes leaves others' reports alone",
            *_beginning(),
            _grant("ann"),
            _record(x="a", y="b"),
            _record("ann", x="b", y="b"),
            _revoke("ann"),
            _refused("no_consent", "ann"),
            _send(first),
        ),
        _history(
            "a batch that may have left is dropped whole, and forgotten on demand",
            *_beginning(),
            _grant("ann"),
            _record(x="a", y="b"),
            _record("ann", x="b"),
            _send(
                _batch("daily", "2026-07-04", 2, {"x/strict": 2, "y/strict": 1}),
                answer="unreachable",
                left=2,
            ),
            _revoke("ann", forget=True),
            _send(),
            _forgets(1),
        ),
        _history(
            "without that nothing is forgotten",
            *_beginning(),
            _grant("ann"),
            _record(x="a", y="b"),
            _send(first, answer="unreachable", left=1),
            _revoke(),
            _send(),
            _forgets(0),
        ),
        *(
            _history(
                f"a batch that an earlier revocation dropped is forgotten when {who} it",
                *_beginning(),
                _grant("ann"),
                _record(x="a", y="b"),
                _record("ann", x="b"),
                _send(
                    _batch("daily", "2026-07-04", 2, {"x/strict": 2, "y/strict": 1}),
                    answer="unreachable",
                    left=2,
                ),
                _revoke("ann"),
                _send(),
                _forgets(0),
                _revoke(person, forget=True),
                _send(),
                _forgets(1),
            )
            for who, person in (("she wants", "ann"), ("somebody else in it wants", ""))
        ),
        _history(
            "a batch that was acknowledged stays counted",
            *_beginning(),
            _grant("ann"),
            _record(x="a", y="b"),
            _send(first),
            _revoke(forget=True),
            _send(),
            _forgets(0),
        ),
    ]


_ALL = {"w": "a", "x": "b", "y": "c", "z": "a"}
_ALL_VIEWS = {"w/strict": 1, "x+y/strict": 1, "x+z/strict": 1}


def _of_views() -> list[Case]:
    """Two views share the attribute x; of the epsilon of a record each question has 0.5."""
    return [
        _history(
            "views are reported once each in a period",
            *_beginning("views"),
            _record(**_ALL),
            _record(**_ALL, dropped=dict.fromkeys(_ALL, "spent")),
            _spent(2, 1.0, "x"),
            _spent(1, 0.5, "y"),
            _spent(1, 0.5, "w"),
            _send(_batch("views", "2026-07-04", 1, _ALL_VIEWS)),
            plan="views",
        ),
        _history(
            "a view is reported by a record that answers all of it",
            *_beginning("views"),
            _record(x="a", dropped={"x": "incomplete"}),
            _record(y="a", z="b", dropped={"y": "incomplete", "z": "incomplete"}),
            _record(x="a", y="b"),
            _record(x="c", z="b"),
            _record(**_ALL, dropped=dict.fromkeys("xyz", "spent")),
            _send(
                _batch("views", "2026-07-04", 3, {"w/strict": 1, "x+y/strict": 1, "x+z/strict": 1})
            ),
            plan="views",
        ),
        _history(
            "an answer outside the domain does not keep its view",
            *_beginning("views"),
            _record(x="no such value", y="b", z="nor this", invalid="x z"),
            _send(_batch("views", "2026-07-04", 1, {"x+y/strict": 1, "x+z/strict": 1})),
            plan="views",
        ),
        _history(
            "a withheld attribute withholds its views",
            *_beginning("views"),
            _record(**_ALL, dropped={"y": "withheld"}),
            _record(x="a", dropped={"x": "incomplete"}),
            _send(_batch("views", "2026-07-04", 1, {"w/strict": 1, "x+z/strict": 1})),
            withhold=["y"],
            plan="views",
        ),
        _history(
            "an attribute of which all views are withheld is withheld",
            *_beginning("views"),
            _record(**_ALL, dropped={"x": "withheld", "y": "withheld", "z": "withheld"}),
            _send(_batch("views", "2026-07-04", 1, {"w/strict": 1})),
            withhold=["x"],
            plan="views",
        ),
        _history(
            "a cap for the life of an attribute counts each of its views",
            *_beginning("views"),
            _record(**_ALL),
            _clock(_NOON + _DAY),
            _record(**_ALL, dropped={"z": "spent"}),
            _spent(3, 1.5, "x"),
            _record(**_ALL, dropped=dict.fromkeys(_ALL, "spent")),
            caps={"attribute_life": {"x": double(1.5)}},
            plan="views",
        ),
        _history(
            "a cap for life counts a view once",
            *_beginning("views"),
            _record(**_ALL),
            _clock(_NOON + _DAY),
            _record(**_ALL, dropped=dict.fromkeys(_ALL, "spent")),
            caps={"life": double(1.5)},
            plan="views",
        ),
        _history(
            "a cap for one report of an attribute counts all views of a record",
            *_beginning("views"),
            _record(**_ALL, dropped=dict.fromkeys(_ALL, "plan_refused")),
            _restart(caps={"attribute": {"x": double(1.0)}}),
            _fetch("views", _NOON),
            _record(**_ALL),
            caps={"attribute": {"x": double(0.75)}},
            plan="views",
        ),
        _history(
            "one of two views is drawn, whatever is answered first",
            *_beginning("drawn"),
            {"do": "record", "person": "", "answers": {"x": "a"}, "counts": {"incomplete": 1}},
            _sampled({"taken": 2, "idle": 1}),
            _sampled({"spent": 2, "idle": 1}),
            plan="drawn",
        ),
    ]


def _of_caps_within_a_period() -> list[Case]:
    """A cap of an attribute holds for a period, at whichever levels its views are reported."""
    return [
        _history(
            "a cap of an attribute counts the period's views of both levels",
            *_beginning("crossed"),
            _record(x="a", y="b"),
            _restart(level="open"),
            _record(x="a", z="b", dropped={"x": "incomplete", "z": "spent"}),
            _record(w="a"),
            _spent(1, 0.75, "x"),
            _clock(_NOON + _DAY),
            _record(x="a", z="b"),
            _send(
                _batch("crossed", "2026-07-04", 2, {"x+y/strict": 1, "w/open": 1}),
                _batch("crossed", "2026-07-05", 1, {"x+z/open": 1}),
            ),
            plan="crossed",
        ),
        _history(
            "a cap of an attribute counts the period's views from the looser level to the stricter",
            *_beginning("crossed"),
            _record(x="a", z="b"),
            _restart(level="strict"),
            _record(x="a", y="b", dropped={"x": "spent", "y": "spent"}),
            _record(w="a"),
            _spent(1, 0.75, "x"),
            plan="crossed",
            level="open",
        ),
        _history(
            "a cap of an attribute allows what fits it after a change of level",
            *_beginning("crossed"),
            _record(x="a", y="b"),
            _restart(level="strict"),
            _record(**_ALL, dropped={"y": "spent"}),
            _spent(2, 0.25, "x"),
            _send(
                _batch("crossed", "2026-07-04", 2, {"x+y/open": 1, "x+z/strict": 1, "w/strict": 1})
            ),
            plan="crossed",
            level="open",
        ),
        _history(
            "a cap for one report of an attribute counts the period's views of both levels",
            *_beginning("crossed without a cap"),
            _record(x="a", y="b"),
            _restart(level="open"),
            _record(x="a", z="b", dropped={"x": "incomplete", "z": "spent"}),
            _restart(caps={"attribute": {"x": double(1.5)}}),
            _record(x="a", z="b"),
            _spent(2, 1.5, "x"),
            plan="crossed without a cap",
            caps={"attribute": {"x": double(1.0)}},
        ),
    ]


def _told(system: str, version: str) -> Case:
    """A batch in the clear: its panel is that of all batches of the history."""
    return {"panel": True, "properties": [system, version]}


def _of_what_is_public() -> list[Case]:
    day = "2026-07-04"
    return [
        _history(
            "a panel is kept over periods, restarts and revocations",
            *_beginning("public"),
            _record(x="a", y="b"),
            _send(_batch("public", day, 1, _BOTH, **_told("", ""))),
            _revoke(),
            _clock(_NOON + _DAY),
            _restart(),
            _grant(),
            _record(x="b"),
            _send(_batch("public", "2026-07-05", 1, {"x/strict": 1}, **_told("", ""))),
            _clock(_NOON + 2 * _DAY),
            _restart(level="open"),
            _fetch("public", _NOON + 2 * _DAY),
            _record(x="c"),
            _send(_batch("public", "2026-07-06", 1, {"x/open": 1}, **_told("", ""))),
            plan="public",
            panels=64,
        ),
        _history(
            "a panel is kept for each number of panels",
            *_beginning("public"),
            _record(x="a"),
            _send(_batch("public", day, 1, {"x/strict": 1}, **_told("", ""))),
            *_revised("public in other panels", 1),
            _record(x="a"),
            _send(
                _batch("public in other panels", "2026-07-05", 1, {"x/strict": 1}, **_told("", ""))
            ),
            *_revised("public", 2),
            _record(x="a"),
            _send(_batch("public", "2026-07-06", 1, {"x/strict": 1}, **_told("", ""))),
            plan="public",
            revision=_INDEX["public"],
            panels=64,
        ),
        _history(
            "reports with other properties go in a batch of their own",
            *_beginning("public"),
            _record(x="a"),
            _restart(properties={"system": "a", "version": "2"}),
            _record(y="a"),
            _send(
                _batch("public", day, 1, {"x/strict": 1}, **_told("a", "")),
                _batch("public", day, 1, {"y/strict": 1}, **_told("a", "2")),
            ),
            plan="public",
            panels=64,
            properties={"system": "a"},
        ),
        _history(
            "a value that is not declared is sent as none given",
            *_beginning("public"),
            _record(x="a"),
            _send(_batch("public", day, 1, {"x/strict": 1}, **_told("", "2"))),
            plan="public",
            panels=64,
            properties={"system": "c", "version": "2"},
        ),
        _history(
            "reports with the same properties share a batch",
            *_beginning("public"),
            _record(x="a"),
            _restart(),
            _record(y="a"),
            _send(_batch("public", day, 2, _BOTH, **_told("a", "1"))),
            plan="public",
            panels=64,
            properties={"system": "a", "version": "1"},
        ),
        *(
            _history(
                f"nothing is told by an app that {note}",
                *_beginning("public"),
                _refused("plan_refused"),
                _send(),
                plan="public",
                **options,
            )
            for note, options in (
                ("agreed to no panels", {}),
                ("agreed to fewer panels", {"panels": 63}),
                ("gives a property that is not declared", {"panels": 64, "properties": {"z": "a"}}),
            )
        ),
    ]


def histories() -> dict[str, list[Any]]:
    """Return histories.json."""
    found = [
        *_of_one_period(),
        *_of_periods(),
        *_of_plans(),
        *_of_maps(),
        *_of_clocks(),
        *_of_ledgers(),
        *_of_caps(),
        *_of_memos(),
        *_of_views(),
        *_of_sending(),
        *_of_consent(),
        *_of_what_is_public(),
        *_of_caps_within_a_period(),
    ]
    assert len({history["note"] for history in found}) == len(found)
    return {"plans": list(_PLANS.values()), "histories": found}
