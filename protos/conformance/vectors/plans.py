"""Vectors of plans: accepted, or refused for one reason each."""

import hashlib
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from google.protobuf.message import Message

from hearsay.plans.plan import mechanism_message, parse
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import InvalidInput, Mechanism
from ldp import mechanisms as m
from ldp.core.exact import ONE, flip_threshold
from ldp.core.policy import Policy
from ldp.mechanisms.ranges.waves import Waves
from vectors import maps, public_plans, set_plans, string_plans, tables
from vectors.mechanisms import waves
from vectors.notation import double

Case = dict[str, Any]
Change = Callable[[plan_pb2.Plan], object]

LEVELS = {"strict": 1.0, "open": 4.0, "alike": 1.0}


def plain() -> plan_pb2.Plan:
    """Return a plan of two attributes, of which every record reports both."""
    survey = survey_pb2.Survey(name="plain", title="Two questions", levels={"strict": 1, "open": 4})
    smokes = survey.attributes.add(name="smokes")
    smokes.categorical.values.extend(["no", "sometimes", "yes"])
    age = survey.attributes.add(name="age")
    age.numeric.low, age.numeric.high = 20.0, 60.0
    plan = plan_pb2.Plan(survey=survey)
    for name, epsilon in (("strict", 1.0), ("open", 4.0)):
        level = plan.levels.add(name=name, epsilon=epsilon)
        level.mechanisms.add().CopyFrom(mechanism_message(m.KRR(3, epsilon / 2)))
        level.mechanisms.add().CopyFrom(mechanism_message(m.OneBitMean(epsilon / 2)))
    return plan


def worded() -> plan_pb2.Plan:
    """Return a plan that has a text in every place."""
    plan = plain()
    plan.survey.budget = "split"
    smokes = plan.survey.attributes[0]
    smokes.title, smokes.mechanism = "Do you smoke?", "krr"
    smokes.categorical.classes["soft"].values.append("yes")
    smokes.categorical.classes["soft"].scale = 1.0
    return plan


def binned() -> plan_pb2.Plan:
    """Return a plan of one attribute, of which a record reports the bin."""
    survey = survey_pb2.Survey(name="binned", levels={"strict": 1})
    wage = survey.attributes.add(name="wage")
    wage.numeric.low, wage.numeric.high, wage.numeric.bins = 0.0, 2000.0, 5
    plan = plan_pb2.Plan(survey=survey)
    made = mechanism_message(waves((5,), 1.0, [0b00001, 0b01001]))
    plan.levels.add(name="strict", epsilon=1.0).mechanisms.add().CopyFrom(made)
    return plan


def _edged(*edges: float, **fields: float) -> bytes:
    """Return the plan of `binned` with edges in the place of its range and bins."""

    def change(plan: plan_pb2.Plan) -> None:
        numeric = plan.survey.attributes[0].numeric
        numeric.Clear()
        numeric.edges.extend(edges)
        for name, value in fields.items():
            setattr(numeric, name, value)

    return _changed(binned, change)


def _with_region(plan: plan_pb2.Plan) -> None:
    plan.survey.attributes[0].numeric.sensitive.add(low=0.0, high=400.0)


def _bins(made: Mechanism | None = None, **fields: float) -> bytes:
    """Return the plan of `binned` with another mechanism, and other fields of its number."""

    def change(plan: plan_pb2.Plan) -> None:
        for name, value in fields.items():
            setattr(plan.survey.attributes[0].numeric, name, value)
        if made:
            plan.levels[0].mechanisms[0].CopyFrom(mechanism_message(made))

    return _changed(binned, change)


def rich() -> plan_pb2.Plan:
    """Return a plan that has all that a plan may have."""
    survey = survey_pb2.Survey(
        name="rich",
        title="Caf\u00e9, \u6771\u4eac, \U0001f642",
        period="P1D",
        budget="sample",
        default_level="strict",
        levels=LEVELS,
        levels_differ_at_most=0.05,
    )
    mood = survey.attributes.add(name="mood", title="Gr\u00f6\u00dfe", memo=2.0)
    mood.categorical.values.extend(["no", "na\u00efve", "\u662f"])
    health = survey.attributes.add(name="health", weight=3.0, mechanism="auto")
    health.categorical.values.extend(["well", "ill", "no answer"])
    for name, value, scale in (("hard", "ill", 0.5), ("soft", "no answer", 0.25)):
        health.categorical.classes[name].values.append(value)
        health.categorical.classes[name].scale = scale
    affair = survey.attributes.add(name="affair")
    affair.categorical.values.extend(["no", "yes"])
    affair.categorical.sensitive.append("yes")
    age = survey.attributes.add(name="age", cap=2.0)
    age.numeric.low, age.numeric.high, age.numeric.clamp = -20.0, 60.0, True
    page = survey.attributes.add(name="page")
    page.numeric.low, page.numeric.high, page.numeric.step = 0.0, 0.3, 0.1
    plan = plan_pb2.Plan(survey=survey)
    for name, epsilon in sorted(LEVELS.items(), key=lambda item: (item[1], item[0])):
        level = plan.levels.add(name=name, epsilon=epsilon)
        level.chances.extend([ONE // 4, ONE // 4, ONE // 4, ONE // 8, ONE // 8])
        for made in _rich_mechanisms(epsilon):
            level.mechanisms.add().CopyFrom(mechanism_message(made))
    return plan


def _rich_mechanisms(epsilon: float) -> Iterator[Mechanism]:
    yield m.KRRChain.calibrate(3, epsilon, 2 * epsilon)
    yield _by_class(epsilon)
    yield m.PolicyUnary.utility_optimised(2, [1], epsilon)
    yield m.PiecewiseMechanism(min(epsilon, 2.0), 1024, 600)
    yield m.LaplaceMechanism(epsilon, 3)


def _by_class(epsilon: float) -> Mechanism:
    """Return a mechanism for three values with scales 1, 1/2 and 1/4 of epsilon."""
    scales = sorted({0.25, 0.5, 1.0})
    policy = Policy.input_discriminative(
        [scales.index(scale) for scale in (1.0, 0.5, 0.25)], [scale * epsilon for scale in scales]
    )
    other = flip_threshold(Fraction(epsilon) / 4)
    return m.PolicyUnary(3, epsilon, (ONE // 2,) * 3, (other,) * 3, policy.integers)


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _changed(make: Callable[[], plan_pb2.Plan], change: Change) -> bytes:
    plan = make()
    change(plan)
    return _bytes(plan)


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80, *_varint(value >> 7)]) if value >> 7 else bytes([value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


_UNKNOWN = _varint(127 << 3) + b"\x01"
"""Field 127, a varint of 1: no message has it."""


def plans() -> dict[str, list[Case]]:
    """Return plans.json."""
    found = []
    of_maps = ((note, _changed(maps.mapped, change), why) for note, change, why in maps.listed())
    listed = [*_written(), *_surveys(), *_levels(), *_mechanisms(), *_views(), *_policies()]
    listed += [*_grids(), *set_plans.listed(), *string_plans.listed(), *_work()]
    listed += public_plans.listed()
    for note, data, reason in [*listed, *of_maps]:
        case: Case = {"note": note, "plan": data.hex(), "accepted": not reason}
        try:
            plan = parse(data)
        except InvalidInput as error:
            assert reason, f"{note}: {error}"
            found.append(case | {"reason": reason})
            continue
        assert not reason, f"{note} is accepted"
        epsilons = {name: double(x.budget.record_epsilon) for name, x in plan.levels.items()}
        revision = hashlib.sha256(data).hexdigest()
        found.append(case | {"revision": revision, "record_epsilon": epsilons})
    return {"plans": found}


Listed = Iterator[tuple[str, bytes, str]]


def _written() -> Listed:
    """Yield what concerns the bytes."""
    data, survey = _bytes(plain()), _bytes(plain().survey)
    levels = data.removeprefix(_field(1, survey))
    yield "two attributes", data, ""
    yield "all that a plan may have", _bytes(rich()), ""
    yield "a number in bins", _bins(), ""
    yield "a number in bins, clamped", _bins(clamp=True), ""
    yield "a number in one bin", _bins(bins=1), "domain"
    yield "a number in 257 bins", _bins(bins=257), "domain"
    yield "a number in bins and steps", _bins(step=400.0), "domain"
    yield "a number in bins and steps of nan", _bins(step=math.nan), "domain"
    yield "a number in bins with a cap", _bins(cap=1.0), "domain"
    yield "a number in bins and regions", _changed(binned, _with_region), "domain"
    yield "bins whose ends are one double", _bins(high=1e-323), "domain"
    rising = (-10.0, 0.0, 1.0, 10.0, 100.0, 1000.0)
    yield "a number in bins between edges", _edged(*rising), ""
    yield "a number in bins between edges, clamped", _edged(*rising, clamp=True), ""
    yield "edges and a range", _edged(*rising, high=2000.0), "domain"
    yield "edges and a range from nan", _edged(*rising, low=math.nan), "domain"
    yield "edges and bins", _edged(*rising, bins=5), "domain"
    yield "edges and steps", _edged(*rising, step=400.0), "domain"
    yield "edges and a cap", _edged(*rising, cap=1.0), "domain"
    yield "edges that fall", _edged(-10.0, 1.0, 0.0, 10.0, 100.0, 1000.0), "domain"
    yield "edges of nan", _edged(-10.0, 0.0, math.nan, 10.0, 100.0, 1000.0), "domain"
    yield "edges without an end", _edged(0.0, 1.0, 2.0, 3.0, 4.0, math.inf), "domain"
    yield "one edge", _edged(1.0), "domain"
    yield "edges of other bins", _edged(*rising[1:]), "fit"
    yield "waves of other bins", _bins(bins=6), "fit"
    yield "waves of a number without bins", _bins(bins=0), "fit"
    yield "bins in two dimensions", _bins(waves((2, 2), 1.0, [1, 3]), bins=4), "fit"
    yield "categories for bins", _bins(m.KRR(5, 1.0)), "fit"
    yield "no bytes", b"", "attributes"
    yield "random bytes", bytes(range(200, 250)), "bytes"
    yield "cut off", data[:-1], "bytes"
    yield "a byte more", data + b"\x00", "bytes"
    yield "a text that is no UTF-8", data.replace(b"plain", b"pl\xff\xfen"), "bytes"
    parts: dict[str, Callable[[plan_pb2.Plan], Message]] = {
        "plan": lambda plan: plan,
        "survey": lambda plan: plan.survey,
        "attribute": lambda plan: plan.survey.attributes[3],
        "categorical": lambda plan: plan.survey.attributes[0].categorical,
        "class": lambda plan: plan.survey.attributes[1].categorical.classes["hard"],
        "numeric": lambda plan: plan.survey.attributes[3].numeric,
        "level": lambda plan: plan.levels[2],
        "mechanism": lambda plan: plan.levels[0].mechanisms[1],
        "parameter": lambda plan: plan.levels[0].mechanisms[1].parameters[0],
    }
    for part, of in parts.items():
        changed = _changed(rich, lambda plan, of=of: of(plan).MergeFromString(_UNKNOWN))
        yield f"an unknown field in the {part}", changed, "unknown"
    loose, strict = (
        _field(4, _field(1, name) + b"\x11" + struct.pack("<d", epsilon))
        for name, epsilon in ((b"open", 4.0), (b"strict", 1.0))
    )
    assert loose + strict in survey
    first = _bytes(plain().levels[0])
    unpacked = _bytes(plain().levels[0].mechanisms[0].parameters[0])
    name, value = unpacked[: 2 + unpacked[1]], unpacked[2 + unpacked[1] :]
    assert value[0] == 2 << 3 | 2
    loosened = name + _varint(2 << 3) + value[2:]
    mechanism = _bytes(plain().levels[0].mechanisms[0])
    turned = mechanism.replace(_field(3, unpacked), _field(3, loosened))
    other_first = first.replace(_field(3, mechanism), _field(3, turned))
    for note, written in {
        "a field after a later one": levels + _field(1, survey),
        "a message in two parts": _field(1, survey) + _field(1, b"") + levels,
        "a field twice": _field(1, _field(2, b"other") + survey) + levels,
        "a default written out": _field(1, survey + _field(6, b"")) + levels,
        "a map in another order": data.replace(loose + strict, strict + loose),
        "a key twice": _field(1, _field(4, _field(1, b"open")) + survey) + levels,
        "a long varint": b"\x0a"
        + bytes([len(survey) & 0x7F | 0x80, len(survey) >> 7 | 0x80, 0])
        + survey
        + levels,
        "repeated numbers that are not packed": data.replace(
            _field(2, first), _field(2, other_first)
        ),
    }.items():
        assert written != data
        yield note, written, "canonical"


def _write(plan: plan_pb2.Plan, place: str, text: str) -> None:
    """Put a text into a survey, everywhere where the plan repeats it."""
    survey = plan.survey
    match place:
        case "name" | "title" | "budget":
            setattr(survey, place, text)
        case "levels":
            survey.levels[text] = survey.levels.pop("open")
            plan.levels[1].name = text
        case "attribute's name":
            survey.attributes[0].name = text
        case "attribute's title":
            survey.attributes[0].title = text
        case "attribute's mechanism":
            survey.attributes[0].mechanism = text
        case "values":
            survey.attributes[0].categorical.values[1] = text
        case "classes":
            classes = survey.attributes[0].categorical.classes
            classes[text].CopyFrom(classes.pop("soft"))


_TEXTS = ("name", "title", "budget", "levels", "attribute's name", "attribute's title")
_TEXTS += ("attribute's mechanism", "values", "classes")

_HIDDEN = "\0\n\x7f\x85\xad\u034f\u115f\u17b4\u180b\u180f\u200b\u202e\u2028\u2029\u2065\u3164"
_HIDDEN += "\ue000\ufe0f\ufeff\uffa0\ufff8\U000e0041\U000e01ef\U0010fffd"
_HIDDEN += "\xa0\u1680\u2003\u2800\u3000\U0001d159"


def _surveys() -> Listed:
    """Yield what concerns the survey."""
    for place in _TEXTS:
        for note, text, reason in (
            ("a word", "zoo", ""),
            ("a zero-width space", "zo\u200bo", "text"),
            ("combining marks in disorder", "zo\u0308o\u0301", "text"),
        ):
            changed = _changed(worded, lambda plan, p=place, t=text: _write(plan, p, t))
            yield f"{place}: {note}", changed, reason
    for character in _HIDDEN:
        changed = _changed(plain, lambda plan, c=character: _write(plan, "title", f"A{c}b"))
        yield f"U+{ord(character):04X} in the title", changed, "text"
    for text, reason in (
        ("Cafe\u0301", "text"),
        ("\u212b", "text"),
        ("\u0915\u0958", "text"),
        ("\u1100\u1161", "text"),
        ("\uac00", ""),
        ("\u1ea1\u0301", ""),
        ("A b c", ""),
        (" A", "text"),
        ("A ", "text"),
        ("A  b", "text"),
        ("Caf\u00e9  b", "text"),
        ("\U0001f1eb\U0001f1f7", ""),
    ):
        points = " ".join(f"U+{ord(each):04X}" for each in text)
        changed = _changed(plain, lambda plan, t=text: _write(plan, "title", t))
        yield f"the title {points}", changed, reason
    for unit, reason in (("P1D", ""), ("PT1H", ""), ("P2D", "period"), ("P1d", "period")):
        changed = _changed(plain, lambda plan, u=unit: setattr(plan.survey, "period", u))
        yield f"period {unit}", changed, reason

    def edited(
        note: str, change: Callable[[survey_pb2.Survey], object], reason: str, make: Any = plain
    ) -> tuple[str, bytes, str]:
        return note, _changed(make, lambda plan: change(plan.survey)), reason

    def values(*listed: str) -> Callable[[survey_pb2.Survey], object]:
        return lambda survey: survey.attributes[0].categorical.values.__setitem__(
            slice(None), listed
        )

    yield edited("one value", values("no"), "domain")
    yield edited("an empty value", values("no", "", "yes"), "domain")
    yield edited("a value twice", values("no", "no", "yes"), "domain")
    yield edited("four values for a mechanism of three", values("a", "b", "c", "d"), "fit")
    sensitive = [("sensitive values unknown", ["maybe"], "domain")]
    sensitive += [("a sensitive value twice", ["no", "no"], "domain")]
    sensitive += [("one sensitive value, all protected", ["yes"], "")]
    for note, listed, reason in sensitive:
        yield edited(
            note, lambda s, ls=listed: s.attributes[0].categorical.sensitive.extend(ls), reason
        )

    def classes(*of: tuple[str, Sequence[str], float]) -> Callable[[survey_pb2.Survey], object]:
        def change(survey: survey_pb2.Survey) -> None:
            for name, members, scale in of:
                survey.attributes[0].categorical.classes[name].values.extend(members)
                survey.attributes[0].categorical.classes[name].scale = scale

        return change

    yield edited("a class that is protected more", classes(("a", ["yes"], 0.5)), "policy")
    yield edited("a class of scale 1", classes(("a", ["yes"], 1.0)), "")
    yield edited("a class of scale 0", classes(("a", ["yes"], 0.0)), "domain")
    yield edited("a class of scale 1.5", classes(("a", ["yes"], 1.5)), "domain")
    yield edited("a class of scale nan", classes(("a", ["yes"], math.nan)), "domain")
    yield edited("a class without values", classes(("a", [], 0.5)), "domain")
    twice = classes(("a", ["yes"], 0.5), ("b", ["yes"], 0.25))
    yield edited("a value in two classes", twice, "domain")
    every = classes(("a", ["no", "sometimes", "yes"], 0.5))
    yield edited("no value has all of epsilon", every, "domain")

    def both(survey: survey_pb2.Survey) -> None:
        survey.attributes[0].categorical.sensitive.append("no")
        classes(("a", ["yes"], 0.5))(survey)

    yield edited("sensitive values and classes", both, "domain")
    yield from _graded(edited)
    for low, high, step, reason in (
        (20.0, 20.0, 0.0, "domain"),
        (20.0, math.inf, 0.0, "domain"),
        (math.nan, 60.0, 0.0, "domain"),
        (20.0, 60.0, 1.0, ""),
        (20.0, 60.0, 3.0, "domain"),
        (20.0, 60.0, -1.0, "domain"),
        (0.0, 513.0, 1.0, "domain"),
        (0.0, 512.0, 1.0, ""),
    ):

        def numeric(
            survey: survey_pb2.Survey, low: float = low, high: float = high, step: float = step
        ) -> None:
            wire = survey.attributes[1].numeric
            wire.low, wire.high, wire.step = low, high, step

        yield edited(f"numbers {low} to {high} in steps of {step}", numeric, reason)
    yield edited("no domain", lambda s: s.attributes[0].ClearField("categorical"), "domain")
    yield edited(
        "two attributes of one name",
        lambda s: setattr(s.attributes[1], "name", "smokes"),
        "attributes",
    )
    yield edited("no attributes", lambda s: s.ClearField("attributes"), "attributes")
    for cap, reason in ((0.5, "cap"), (2.0, ""), (math.nan, "cap"), (0.0, "cap")):
        yield edited(f"a cap of {cap}", lambda s, c=cap: setattr(s.attributes[0], "cap", c), reason)
    for memo, reason in (
        (1.0, "memo"),
        (1.999, "memo"),
        (0.5, "memo"),
        (math.nan, "memo"),
        (math.inf, "memo"),
        (2.5, ""),
    ):
        change = lambda s, x=memo: setattr(s.attributes[0], "memo", x)  # noqa: E731
        yield edited(f"memo {memo} of two rounds", change, reason, rich)
    yield edited(
        "a memo of a number", lambda s: setattr(s.attributes[3], "memo", 2.0), "memo", rich
    )
    yield edited("a memo of classes", lambda s: setattr(s.attributes[1], "memo", 2.0), "memo", rich)
    yield edited("memos without a period", lambda s: setattr(s, "period", ""), "memo", rich)

    def without_rounds(survey: survey_pb2.Survey, memo: float) -> None:
        survey.period, survey.attributes[0].memo = "P1D", memo

    yield edited("memo 1 of k-RR", lambda s: without_rounds(s, 1.0), "")
    yield edited("memo 1.5 of k-RR", lambda s: without_rounds(s, 1.5), "memo")
    for name, reason in (("open", ""), ("loose", "default_level")):
        change = lambda s, n=name: setattr(s, "default_level", n)  # noqa: E731
        yield edited(f"default level {name}", change, reason)
    for most, reason in ((0.0, ""), (1.0, ""), (-0.1, "levels_differ"), (1.1, "levels_differ")):
        change = lambda s, x=most: setattr(s, "levels_differ_at_most", x)  # noqa: E731
        yield edited(f"levels differ at most by {most}", change, reason)
    nan = lambda s: setattr(s, "levels_differ_at_most", math.nan)  # noqa: E731
    yield edited("levels differ at most by nan", nan, "levels_differ")


def _levels() -> Listed:
    """Yield what concerns levels and budgets."""

    def edited(note: str, change: Change, reason: str, make: Any = plain) -> tuple[str, bytes, str]:
        return note, _changed(make, change), reason

    yield edited("no levels", lambda plan: plan.ClearField("levels"), "levels")
    yield edited(
        "two levels of one name", lambda p: setattr(p.levels[1], "name", "strict"), "levels"
    )
    yield edited("levels in another order", lambda plan: plan.levels.reverse(), "levels")
    turned = lambda plan: plan.levels.insert(0, plan.levels.pop(1))  # noqa: E731
    yield edited("levels of one epsilon not by name", turned, "levels", rich)
    yield edited(
        "another epsilon than declared", lambda p: setattr(p.levels[1], "epsilon", 4.5), "levels"
    )
    yield edited("a level that is not declared", lambda p: p.survey.levels.pop("open"), "levels")

    def longer(plan: plan_pb2.Plan) -> None:
        plan.levels[1].name = "strict_not"
        plan.survey.levels["strict_not"] = plan.survey.levels.pop("open")

    yield edited("a level whose name begins with another's", longer, "")
    for epsilon in (math.nan, math.inf, -1.0, 0.0, math.nextafter(1.0, 0)):

        def change(plan: plan_pb2.Plan, epsilon: float = epsilon) -> None:
            plan.levels[0].epsilon = plan.survey.levels["strict"] = epsilon

        yield edited(f"a level of {epsilon!r}", change, "epsilon")
    yield edited("a mechanism too few", lambda p: p.levels[0].mechanisms.pop(), "levels")
    for first, second in ((0.1, 0.2), (0.7, 0.1)):
        # Sums in doubles round: only the exact sum tells.
        for level in sorted({first + second, 0.3, math.nextafter(first + second, 0)}):
            if abs(level - first - second) > 1e-9:
                continue

            def split(
                plan: plan_pb2.Plan,
                level: float = level,
                pair: tuple[float, float] = (first, second),
            ) -> None:
                plan.levels[0].epsilon = plan.survey.levels["strict"] = level
                made = (m.KRR(3, pair[0]), m.OneBitMean(pair[1]))
                for wire, each in zip(plan.levels[0].mechanisms, made, strict=True):
                    wire.CopyFrom(mechanism_message(each))

            exceeds = Fraction(first) + Fraction(second) > Fraction(level)
            note = f"{first!r} and {second!r} in {level!r}"
            yield edited(note, split, "epsilon" if exceeds else "")

    def chances(*each: int) -> Change:
        return lambda plan: plan.levels[1].chances.extend(each)

    yield edited("one chance", chances(5), "chances")
    yield edited("two halves of a half", chances(1 << 62, 1 << 62), "chances")
    yield edited("both always", chances(0, 0), "")
    yield edited("one of two", chances(ONE // 2, ONE // 2), "")
    yield edited("one of two, unevenly", chances(1, ONE - 1), "")

    def sampled(plan: plan_pb2.Plan, *each: int) -> None:
        level = plan.levels[1]
        level.chances.extend(each)
        level.mechanisms[0].CopyFrom(mechanism_message(m.KRR(3, 4.0)))
        level.mechanisms[1].CopyFrom(mechanism_message(m.OneBitMean(4.0)))

    half = ONE // 2
    yield edited("one of two, each with all of epsilon", lambda p: sampled(p, half, half), "")
    yield edited("both, each with all of epsilon", lambda p: sampled(p, 0, 0), "epsilon")
    most, least = ONE - 1, 1
    yield edited("one of two by a hair", lambda p: sampled(p, most, least), "")

    def three(plan: plan_pb2.Plan) -> None:
        plan.levels[0].chances[:] = [0, ONE // 4, ONE // 4, ONE // 4, ONE // 4]

    yield edited("more at once than epsilon allows", three, "epsilon", rich)


def _mechanisms() -> Listed:
    """Yield what concerns the mechanisms."""

    def replaced(made: Mechanism) -> Change:
        return lambda plan: plan.levels[0].mechanisms[0].CopyFrom(mechanism_message(made))

    def edited(note: str, change: Change, reason: str, make: Any = plain) -> tuple[str, bytes, str]:
        return note, _changed(make, change), reason

    for made in (
        m.UnaryEncoding(3, 0.5),
        m.SubsetSelection(3, 0.5, 1),
        m.HadamardResponse(3, 0.5, 1),
        m.OrderedExponential(3, 0.5),
        m.KRRChain.calibrate(3, 0.5, 1.0),
        m.DBitFlip(3, 0.5, 2),
        m.LocalHashing(3, 0.5),
        m.KRR(3, 0.25),
    ):
        yield edited(f"{made.name} in its place", replaced(made), "")
    yield edited("k-RR of 4 values", replaced(m.KRR(4, 0.5)), "fit")
    yield edited(
        "k-RR for a number",
        lambda p: p.levels[0].mechanisms[1].CopyFrom(mechanism_message(m.KRR(3, 0.5))),
        "fit",
    )
    yield edited("one bit for values", replaced(m.OneBitMean(0.5)), "fit")
    yield edited("RAPPOR", replaced(m.RAPPOR.calibrate(0.5, 1.0)), "fit")
    first = lambda plan: plan.levels[0].mechanisms[0]  # noqa: E731
    yield edited(
        "an unknown mechanism", lambda p: setattr(first(p), "name", "quantum"), "mechanism"
    )
    yield edited("no mechanism's name", lambda p: setattr(first(p), "name", ""), "mechanism")
    for epsilon in (0.0, -1.0, math.nan, math.inf, 33.0, math.nextafter(0.5, 0)):
        change = lambda p, x=epsilon: setattr(first(p), "epsilon", x)  # noqa: E731
        yield edited(f"a mechanism of {epsilon!r}", change, "mechanism")
    yield edited("parameters in disorder", lambda p: first(p).parameters.reverse(), "mechanism")
    yield edited(
        "a parameter twice",
        lambda p: first(p).parameters.append(first(p).parameters[0]),
        "mechanism",
    )
    yield edited("a parameter too few", lambda p: first(p).parameters.pop(), "mechanism")
    yield edited(
        "a parameter too many", lambda p: first(p).parameters.add(name="z", values=[1]), "mechanism"
    )
    for by in (-1, 1):
        for place in range(5):

            def step(plan: plan_pb2.Plan, by: int = by, place: int = place) -> None:
                parameters = plan.levels[0].mechanisms[place].parameters
                values = parameters[len(parameters) - 1].values
                values[0] += by

            data = _changed(rich, step)
            yield f"the last parameter of mechanism {place} {by:+d}", data, _whether(data)

    def loosened(plan: plan_pb2.Plan) -> None:
        plan.survey.attributes[1].categorical.classes["soft"].scale = 0.2

    yield edited("a policy that protects less than declared", loosened, "policy", rich)

    def all_sensitive(plan: plan_pb2.Plan) -> None:
        plan.survey.attributes[2].categorical.sensitive.append("no")

    yield edited("a policy for one of two sensitive values", all_sensitive, "policy", rich)

    def none_sensitive(plan: plan_pb2.Plan) -> None:
        plan.survey.attributes[2].categorical.ClearField("sensitive")

    yield edited("a policy where none is declared", none_sensitive, "policy", rich)

    def other(plan: plan_pb2.Plan) -> None:
        plan.survey.attributes[2].categorical.sensitive[0] = "no"

    yield edited("a policy for the other value", other, "policy", rich)


def paired() -> plan_pb2.Plan:
    """Return a plan of a number and two views, which share an attribute."""
    survey = survey_pb2.Survey(name="paired", levels={"strict": 1.5, "open": 6})
    for name, values in (
        ("smokes", ["no", "sometimes", "yes"]),
        ("sleeps", ["well", "badly"]),
        ("drinks", ["no", "yes"]),
    ):
        survey.attributes.add(name=name).categorical.values.extend(values)
    age = survey.attributes.add(name="age")
    age.numeric.low, age.numeric.high = 20.0, 60.0
    survey.views.add(attributes=["smokes", "sleeps"])
    survey.views.add(attributes=["drinks", "smokes"])
    plan = plan_pb2.Plan(survey=survey)
    for name, epsilon in (("strict", 1.5), ("open", 6.0)):
        level = plan.levels.add(name=name, epsilon=epsilon)
        for made in (
            m.OneBitMean(epsilon / 3),
            m.KRR(6, epsilon / 3),
            m.SubsetSelection(6, epsilon / 3, 2),
        ):
            level.mechanisms.add().CopyFrom(mechanism_message(made))
    return plan


def _views() -> Listed:
    """Yield what concerns attributes that are asked together."""

    def edited(note: str, change: Change, reason: str) -> tuple[str, bytes, str]:
        return note, _changed(paired, change), reason

    def views(*each: Sequence[str]) -> Change:
        def change(plan: plan_pb2.Plan) -> None:
            del plan.survey.views[:]
            plan.survey.views.extend(survey_pb2.View(attributes=names) for names in each)

        return change

    yield "two views that share an attribute", _bytes(paired()), ""
    turned = views(["smokes", "drinks"], ["sleeps", "smokes"])
    yield edited("the attributes of views in another order", turned, "")
    yield edited(
        "a view of three attributes",
        views(["smokes", "sleeps", "drinks"], ["drinks", "smokes"]),
        "fit",
    )
    for note, listed in {
        "a view of no attribute": ([], ["drinks", "smokes"]),
        "a view of one attribute": (["smokes"], ["drinks", "smokes"]),
        "a view with an attribute twice": (["smokes", "smokes"], ["drinks", "smokes"]),
        "a view of an unknown attribute": (["smokes", "eats"], ["drinks", "smokes"]),
        "a view of a number": (["smokes", "age"], ["drinks", "smokes"]),
        "two views of the same attributes": (["smokes", "drinks"], ["drinks", "smokes"]),
    }.items():
        yield edited(note, views(*listed), "views")
    yield edited(
        "a view with an unknown field",
        lambda plan: plan.survey.views[0].MergeFromString(_UNKNOWN),
        "unknown",
    )

    def memo(plan: plan_pb2.Plan) -> None:
        plan.survey.period, plan.survey.attributes[2].memo = "P1D", 1.0

    yield edited("a memo in a view", memo, "views")
    yield edited(
        "an attribute with the name of a view",
        lambda plan: setattr(plan.survey.attributes[3], "name", "smokes+sleeps"),
        "views",
    )

    def large(plan: plan_pb2.Plan, size: int, made: int) -> None:
        views(["smokes", "sleeps"])(plan)
        for attribute in plan.survey.attributes[:2]:
            attribute.categorical.values[:] = map(str, range(size))
        plan.survey.attributes[1].categorical.values[64:] = []
        for level, epsilon in zip(plan.levels, (1.5, 6.0), strict=True):
            del level.mechanisms[:]
            each = m.OneBitMean(epsilon / 4), m.KRR(2, epsilon / 4), m.KRR(made, epsilon / 2)
            for part in (each[1], each[0], each[2]):
                level.mechanisms.add().CopyFrom(mechanism_message(part))

    yield edited("a view of 4,096 combinations", lambda plan: large(plan, 64, 4096), "")
    yield edited("a view of 4,160 combinations", lambda plan: large(plan, 65, 4160), "views")
    yield edited(
        "mechanisms of views in another order",
        lambda plan: plan.levels[0].mechanisms.insert(0, plan.levels[0].mechanisms.pop(2)),
        "fit",
    )
    yield edited(
        "a mechanism for each attribute",
        lambda plan: plan.levels[0].mechanisms.add().CopyFrom(mechanism_message(m.KRR(3, 0.1))),
        "levels",
    )
    yield edited("no views any more", lambda plan: plan.survey.ClearField("views"), "levels")

    def cap(name: int, epsilon: float) -> Change:
        return lambda plan: setattr(plan.survey.attributes[name], "cap", epsilon)

    yield edited("a cap that one view exceeds", cap(1, 1.5), "cap")
    yield edited("a cap that no view exceeds", cap(1, 2.0), "")
    yield edited("a cap that two views exceed together", cap(0, 3.5), "cap")
    yield edited("a cap that two views use up together", cap(0, 4.0), "")
    for name in (0, 1, 2):
        yield edited(f"a cap of nan on attribute {name} of views", cap(name, math.nan), "cap")

    def drawn(plan: plan_pb2.Plan) -> None:
        cap(0, 2.0)(plan)
        for level in plan.levels:
            level.chances.extend([ONE // 2, ONE // 4, ONE // 4])

    yield edited("a cap that no drawn view exceeds", drawn, "")

    def protected(plan: plan_pb2.Plan, *sensitive: int) -> None:
        """Make "yes" and "badly" sensitive, and the mechanism for these combinations."""
        plan.survey.attributes[0].categorical.sensitive.append("yes")
        plan.survey.attributes[1].categorical.sensitive.append("badly")
        for level, epsilon in zip(plan.levels, (0.5, 2.0), strict=True):
            made = m.PolicyUnary.utility_optimised(6, list(sensitive), epsilon)
            level.mechanisms[1].CopyFrom(mechanism_message(made))

    for note, sensitive, reason in (
        ("a combination is sensitive if one of its values is", (1, 3, 4, 5), ""),
        ("more combinations are protected than declared", (1, 2, 3, 4, 5), ""),
        ("a combination with one sensitive value is not protected", (1, 3, 5), "policy"),
        ("combinations of sensitive values alone are protected", (5,), "policy"),
    ):
        yield edited(note, lambda plan, s=sensitive: protected(plan, *s), reason)

    def one_sided(plan: plan_pb2.Plan) -> None:
        protected(plan, 1, 3, 4, 5)
        plan.survey.attributes[1].categorical.ClearField("sensitive")

    yield edited("an attribute of a view protects all its values", one_sided, "policy")


def _grids() -> Listed:
    """Yield views of numbers in bins."""

    def gridded(plan: plan_pb2.Plan, sides: tuple[int, int], *made: Mechanism) -> None:
        """Let the view be of two numbers, with a mechanism at each level."""
        del plan.survey.views[:], plan.survey.attributes[1:3]
        plan.survey.views.add(attributes=["age", "hours"])
        hours = plan.survey.attributes.add(name="hours")
        hours.numeric.high, hours.numeric.bins = 24.0, sides[1]
        plan.survey.attributes[1].numeric.bins = sides[0]
        for level, each in zip(plan.levels, made, strict=True):
            del level.mechanisms[:]
            for mechanism in (m.KRR(3, level.epsilon / 3), each):
                level.mechanisms.add().CopyFrom(mechanism_message(mechanism))

    def edited(
        note: str, sides: tuple[int, int], reason: str, *made: Mechanism
    ) -> tuple[str, bytes, str]:
        return note, _changed(paired, lambda plan: gridded(plan, sides, *made)), reason

    waves = Waves((3, 2), 0.5), Waves((3, 2), 2.0)
    yield edited("two numbers in bins", (3, 2), "", *waves)
    yield edited("two numbers in other bins than the waves'", (2, 3), "fit", *waves)
    yield edited("two numbers in bins as values", (3, 2), "fit", m.KRR(6, 0.5), m.KRR(6, 2.0))
    yield edited("two numbers of 257 bins", (257, 2), "domain", *waves)
    yield edited("two numbers of 258 rectangles", (129, 2), "views", *waves)

    def mixed(plan: plan_pb2.Plan) -> None:
        plan.survey.attributes[3].numeric.bins = 2
        del plan.survey.views[:]
        plan.survey.views.add(attributes=["smokes", "age"])
        for level in plan.levels:
            del level.mechanisms[:]
            share = level.epsilon / 3
            for made in (m.KRR(2, share), m.KRR(2, share), m.KRR(6, share)):
                level.mechanisms.add().CopyFrom(mechanism_message(made))

    yield "values and bins", _changed(paired, mixed), ""


def _policies() -> Listed:
    """Yield a view of attributes with classes: a combination has its values' smallest scale."""

    def scaled(plan: plan_pb2.Plan, scale: float) -> None:
        del plan.survey.views[1]
        for attribute, value, own in zip(
            plan.survey.attributes, ("yes", "badly"), (0.5, 0.75), strict=False
        ):
            attribute.categorical.classes["c"].values.append(value)
            attribute.categorical.classes["c"].scale = own
        scales = sorted({0.5, 0.75, 1.0})
        of = [scales.index(own) for own in (1.0, 0.75, 1.0, 0.75, 0.5, scale)]
        for level in plan.levels:
            epsilon = level.epsilon / 3
            policy = Policy.input_discriminative(of, [own * epsilon for own in scales])
            other = flip_threshold(Fraction(epsilon) / 4)
            made = m.PolicyUnary(6, epsilon, (ONE // 2,) * 3, (other,) * 3, policy.integers)
            del level.mechanisms[:]
            for each in (m.KRR(2, epsilon), m.OneBitMean(epsilon), made):
                level.mechanisms.add().CopyFrom(mechanism_message(each))

    yield "classes in a view", _changed(paired, lambda plan: scaled(plan, 0.5)), ""
    less = _changed(paired, lambda plan: scaled(plan, 0.75))
    yield "a combination with a larger scale than one of its values", less, "policy"


def _work() -> Listed:
    """Yield plans at and above the limits of what a device computes to check them."""

    def levels(count: int, made: Mechanism, attribute: survey_pb2.Attribute) -> bytes:
        plan = plan_pb2.Plan(survey=survey_pb2.Survey(name="long", attributes=[attribute]))
        for number in range(count):
            name = f"l{number:02}"
            plan.survey.levels[name] = made.epsilon
            level = plan.levels.add(name=name, epsilon=made.epsilon)
            level.mechanisms.add().CopyFrom(mechanism_message(made))
        return _bytes(plan)

    smokes = survey_pb2.Attribute(name="smokes")
    smokes.categorical.values.extend(["no", "yes"])
    yield "64 levels", levels(64, m.KRR(2, 1.0), smokes), ""
    yield "65 levels", levels(65, m.KRR(2, 1.0), smokes), "work"
    stars = survey_pb2.Attribute(name="stars")
    stars.ratings.keys.extend(f"{number:x}" for number in range(1537))
    stars.ratings.low, stars.ratings.high, stars.ratings.at_most = 1.0, 5.0, 1024
    largest = m.SetSelection(2 * 1537, 1.0, 1024, 4096, 1023)  # 1088 * 4096 of 2^28
    yield "60 of the largest set selections", levels(60, largest, stars), ""
    yield "61 of the largest set selections", levels(61, largest, stars), "work"


def _whether(data: bytes) -> str:
    """Return the reason of a mechanism whose integer was moved, "" where it still holds."""
    try:
        parse(data)
    except InvalidInput:
        return "mechanism"
    return ""


def _graded(
    edited: Callable[[str, Callable[[survey_pb2.Survey], object], str], tuple[str, bytes, str]],
) -> Iterator[tuple[str, bytes, str]]:
    """Yield plans whose second question, from 20 to 60, has regions or a resolution."""
    regions: tuple[tuple[str, Sequence[tuple[float, float]], str], ...] = (
        ("a region, all protected", [(30.0, 60.0)], ""),
        ("a region of one number", [(20.0, 20.0)], ""),
        ("two regions", [(20.0, 21.0), (22.0, 60.0)], ""),
        ("all numbers in a region", [(20.0, 60.0)], "domain"),
        ("a region beyond the range", [(30.0, 61.0)], "domain"),
        ("a region upside down", [(31.0, 30.0)], "domain"),
        ("a region of nan", [(math.nan, 30.0)], "domain"),
        ("regions that touch", [(20.0, 30.0), (30.0, 40.0)], "domain"),
        ("regions that do not rise", [(30.0, 40.0), (20.0, 25.0)], "domain"),
        ("16 regions", [(20.0 + i, 20.5 + i) for i in range(16)], ""),
        ("17 regions", [(20.0 + i, 20.5 + i) for i in range(17)], "domain"),
    )
    for note, listed, reason in regions:

        def sensitive(
            survey: survey_pb2.Survey, listed: Sequence[tuple[float, float]] = listed
        ) -> None:
            for low, high in listed:
                survey.attributes[1].numeric.sensitive.add(low=low, high=high)

        yield edited(note, sensitive, reason)
    parts: tuple[tuple[str, Sequence[tuple[float, float]], float, str], ...] = (
        ("a resolution without its policy", [(60.0, 10.0)], 2.0, "policy"),
        ("a resolution, with a cap that is reached", [(30.0, 10.0), (60.0, 30.0)], 2.0, "policy"),
        ("a cap that is not reached", [(30.0, 10.0), (60.0, 30.0)], 2.001, "domain"),
        ("a cap below 1", [(60.0, 10.0)], 0.999, "domain"),
        ("no cap, and one is not reached", [(60.0, 40.5)], 0.0, "domain"),
        ("a cap of infinity", [(60.0, 10.0)], math.inf, "domain"),
        ("a cap alone", [], 2.0, "domain"),
        ("a resolution that ends early", [(59.0, 10.0)], 1.0, "domain"),
        ("a resolution that ends late", [(61.0, 10.0)], 1.0, "domain"),
        ("a resolution that does not rise", [(30.0, 1.0), (30.0, 1.0), (60.0, 1.0)], 1.0, "domain"),
        ("a resolution that begins at the end", [(20.0, 1.0), (60.0, 1.0)], 1.0, "domain"),
        ("within 0", [(60.0, 0.0)], 1.0, "domain"),
        ("within infinity", [(60.0, math.inf)], 0.0, "domain"),
        ("within nan", [(60.0, math.nan)], 0.0, "domain"),
    )
    for note, listed, cap, reason in parts:

        def resolution(
            survey: survey_pb2.Survey,
            listed: Sequence[tuple[float, float]] = listed,
            cap: float = cap,
        ) -> None:
            for upto, within in listed:
                survey.attributes[1].numeric.resolution.add(upto=upto, within=within)
            survey.attributes[1].numeric.cap = cap

        yield edited(note, resolution, reason)

    def both(survey: survey_pb2.Survey) -> None:
        survey.attributes[1].numeric.sensitive.add(low=30, high=60)
        survey.attributes[1].numeric.resolution.add(upto=60, within=10)

    yield edited("regions and a resolution", both, "domain")
    for note, added in (
        ("bins and a region", survey_pb2.Numeric(sensitive=[survey_pb2.Region(high=9)])),
        (
            "bins and a resolution",
            survey_pb2.Numeric(resolution=[survey_pb2.Resolution(upto=2000, within=9)]),
        ),
        ("bins and a cap", survey_pb2.Numeric(cap=1)),
    ):
        change = lambda plan, m=added: plan.survey.attributes[0].numeric.MergeFrom(m)  # noqa: E731
        yield note, _changed(binned, change), "domain"
    # On 3 points the last is protected; on 5 two neighbours are 0.75 apart, and all at most 2.
    region, line = (t for t in tables.every() if len(t.integers.get("policy", ())) in (8, 31))
    for made, step, first, within, reason in (
        (region, 0.0, 60.0, 0.0, ""),
        (region, 0.0, 59.9, 0.0, "policy"),
        (region, 20.0, 59.9, 0.0, "policy"),
        (region, 20.0, 60.0, 0.0, ""),
        (region, 0.0, 0.0, 0.0, "policy"),
        (line, 10.0, 0.0, 13.3, ""),
        (line, 10.0, 0.0, 13.4, "policy"),
        (line, 0.0, 0.0, 13.3, "policy"),
        (line, 0.0, 0.0, 7.9, ""),
        (line, 0.0, 0.0, 0.0, ""),
    ):

        def graded(
            plan: plan_pb2.Plan,
            made: Mechanism = made,
            step: float = step,
            first: float = first,
            within: float = within,
        ) -> None:
            del plan.levels[1:]
            plan.survey.levels.clear()
            plan.survey.levels["strict"] = plan.levels[0].epsilon = 4.0
            plan.levels[0].mechanisms[1].CopyFrom(mechanism_message(made))
            numeric = plan.survey.attributes[1].numeric
            numeric.step = step
            if first:
                numeric.sensitive.add(low=first, high=60)
            if within:
                numeric.resolution.add(upto=60, within=within)
                numeric.cap = 2.0

        note = f"{made.name} with step {step:g}, sensitive from {first:g}, within {within:g}"
        yield note, _changed(plain, graded), reason
