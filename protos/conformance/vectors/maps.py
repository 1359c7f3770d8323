"""Vectors of plans with maps of sensitive values: accepted, or refused for one reason each."""

from collections.abc import Callable, Iterator, Sequence

from hearsay.plans.plan import mechanism_message
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import Mechanism
from ldp import mechanisms as m

Change = Callable[[plan_pb2.Plan], object]

VALUES = ("no", "sometimes", "yes")
MAPS = {"mine": ("yes",), "work": ("yes", "sometimes")}


def of_map(sensitive: Sequence[str], epsilon: float) -> Mechanism:
    """Return a mechanism that protects these values, by integers without an optimisation."""
    return m.PolicyUnary.utility_optimised(3, [VALUES.index(each) for each in sensitive], epsilon)


def mapped() -> plan_pb2.Plan:
    """Return a plan of two attributes with maps."""
    survey = survey_pb2.Survey(name="mapped", levels={"strict": 1.0})
    for name, maps in (("smokes", MAPS), ("drinks", {"mine": ("no",)})):
        attribute = survey.attributes.add(name=name)
        attribute.categorical.values.extend(VALUES)
        for chosen, sensitive in maps.items():
            attribute.categorical.maps[chosen].sensitive.extend(sensitive)
    plan = plan_pb2.Plan(survey=survey)
    level = plan.levels.add(name="strict", epsilon=1.0)
    for _ in survey.attributes:
        level.mechanisms.add().CopyFrom(mechanism_message(m.KRR(3, 0.5)))
    for sensitive in (*MAPS.values(), ("no",)):
        level.mapped.add().CopyFrom(mechanism_message(of_map(sensitive, 0.5)))
    return plan


def listed() -> Iterator[tuple[str, Change, str]]:
    """Yield changes of `mapped`, each after a note and before the reason to refuse it."""
    yield "maps of sensitive values", lambda plan: None, ""

    def maps(**of: Sequence[str]) -> Change:
        """Let the first attribute have other maps, with mechanisms that protect every value."""

        def change(plan: plan_pb2.Plan) -> None:
            wire = plan.survey.attributes[0].categorical
            wire.maps.clear()
            for name, sensitive in of.items():
                wire.maps[name].sensitive.extend(sensitive)
            for level in plan.levels:
                own = level.mechanisms[0]
                last = plan_pb2.Mechanism.FromString(level.mapped[2].SerializeToString())
                del level.mapped[:]
                level.mapped.extend([*[own] * len(of), last])

        return change

    eight = {f"m{n}": [f"v{i}" for i in range(4) if n + 1 >> i & 1] for n in range(9)}

    def many(count: int) -> Change:
        """Let the first attribute have four values and so many maps."""

        def change(plan: plan_pb2.Plan) -> None:
            plan.survey.attributes[0].categorical.values[:] = [f"v{i}" for i in range(4)]
            for level in plan.levels:
                level.mechanisms[0].CopyFrom(mechanism_message(m.KRR(4, 0.5)))
            maps(**{name: eight[name] for name in list(eight)[:count]})(plan)

        return change

    yield "a map whose mechanism protects every value", maps(mine=["yes"]), ""
    yield "eight maps", many(8), ""
    yield "nine maps", many(9), "domain"
    yield "a map of one digit more", maps(mine=["yes"], mine2=["no"]), ""
    yield "a map without values", maps(mine=[]), "domain"
    yield "a map of all values", maps(mine=VALUES), "domain"
    yield "a map's value unknown", maps(mine=["maybe"]), "domain"
    yield "a map's value twice", maps(mine=["yes", "yes"]), "domain"
    same = maps(mine=["yes", "no"], work=["no", "yes"])
    yield "two maps of the same values", same, "domain"
    yield "a map without a name", maps(**{"": ["yes"]}), "domain"
    yield "a map with a capital in its name", maps(Mine=["yes"]), "domain"
    yield "a map that begins with a digit", maps(**{"2nd": ["yes"]}), "domain"
    yield "a map's name of 64 characters", maps(**{"m" * 64: ["yes"]}), ""
    yield "a map's name of 65 characters", maps(**{"m" * 65: ["yes"]}), "domain"
    yield "a map's name with a zero-width space", maps(**{"mi\u200bne": ["yes"]}), "text"

    def survey(change: Callable[[survey_pb2.Attribute], object]) -> Change:
        return lambda plan: change(plan.survey.attributes[0])

    yield (
        "maps and sensitive values",
        survey(lambda a: a.categorical.sensitive.append("yes")),
        "domain",
    )
    yield (
        "maps and classes",
        survey(lambda a: a.categorical.classes["soft"].MergeFrom(_SOFT)),
        "domain",
    )

    def memo(plan: plan_pb2.Plan) -> None:
        plan.survey.period, plan.survey.attributes[0].memo = "P1D", 1.0

    yield "a memo of maps", memo, "memo"
    unknown = bytes([0xF8, 0x07, 0x01])  # field 127, a varint of 1
    yield (
        "an unknown field in a map",
        survey(lambda a: a.categorical.maps["mine"].MergeFromString(unknown)),
        "unknown",
    )

    def level(change: Callable[[plan_pb2.Level], object]) -> Change:
        return lambda plan: change(plan.levels[0])

    yield "a mechanism of a map too few", level(lambda x: x.mapped.pop()), "levels"
    yield "a mechanism of a map too many", level(lambda x: x.mapped.append(x.mapped[0])), "levels"
    yield "no mechanisms of maps", level(lambda x: x.ClearField("mapped")), "levels"
    yield (
        "a map that the attribute lacks",
        survey(lambda a: a.categorical.maps.pop("work")),
        "levels",
    )
    first, second = (mechanism_message(of_map(each, 0.5)) for each in MAPS.values())
    yield (
        "a mechanism that protects less than its map",
        level(lambda x: x.mapped[1].CopyFrom(first)),
        "policy",
    )
    yield (
        "a mechanism that protects more than its map",
        level(lambda x: x.mapped[0].CopyFrom(second)),
        "",
    )
    other = mechanism_message(of_map(("no",), 0.5))
    yield (
        "a map's mechanism for other values",
        level(lambda x: x.mapped[0].CopyFrom(other)),
        "policy",
    )
    for epsilon in (0.25, 0.5000000000000001, 2.0):
        made = mechanism_message(of_map(MAPS["mine"], epsilon))
        note = f"a map's mechanism with epsilon {epsilon!r}"
        yield note, level(lambda x, made=made: x.mapped[0].CopyFrom(made)), "mechanism"
    weak = mechanism_message(of_map(MAPS["mine"], 2.0))
    weak.epsilon = 0.5
    yield (
        "a map's mechanism that exceeds its epsilon",
        level(lambda x: x.mapped[0].CopyFrom(weak)),
        "mechanism",
    )
    four = mechanism_message(m.KRR(4, 0.5))
    yield "a map's mechanism of four values", level(lambda x: x.mapped[0].CopyFrom(four)), "fit"
    number = mechanism_message(m.OneBitMean(0.5))
    yield "a map's mechanism of numbers", level(lambda x: x.mapped[0].CopyFrom(number)), "fit"


_SOFT = survey_pb2.Class(values=["yes"], scale=0.5)
