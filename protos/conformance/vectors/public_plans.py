"""Plans that have devices tell something in the clear: panels and properties."""

from collections.abc import Callable, Iterator

from hearsay.plans.plan import mechanism_message
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import KRR

Change = Callable[[survey_pb2.Survey], object]


def _plan() -> plan_pb2.Plan:
    """Return a plan with 16 panels and two properties."""
    survey = survey_pb2.Survey(name="apps", period="P1D", levels={"strict": 1.0}, panels=16)
    survey.attributes.add(name="mood").categorical.values.extend(["bad", "good"])
    survey.properties.add(name="platform", title="Platform", values=["ios", "android"])
    survey.properties.add(name="version", values=["1", "2", "3"])
    plan = plan_pb2.Plan(survey=survey)
    level = plan.levels.add(name="strict", epsilon=1.0)
    level.mechanisms.add().CopyFrom(mechanism_message(KRR(2, 1.0)))
    return plan


def listed() -> Iterator[tuple[str, bytes, str]]:
    """Yield a note, a plan's bytes, and the reason why it is refused: "" where it is accepted."""

    def changed(change: Change) -> bytes:
        plan = _plan()
        change(plan.survey)
        return bytes(plan.SerializeToString(deterministic=True))

    def panels(number: int, period: str = "P1D") -> bytes:
        def change(survey: survey_pb2.Survey) -> None:
            survey.panels, survey.period = number, period

        return changed(change)

    def name(text: str) -> bytes:
        return changed(lambda survey: setattr(survey.properties[1], "name", text))

    def properties(*sizes: int, number: int = 16) -> bytes:
        def change(survey: survey_pb2.Survey) -> None:
            survey.panels = number
            del survey.properties[:]
            for place, size in enumerate(sizes):
                values = [str(each) for each in range(size)]
                survey.properties.add(name=f"p{place}", values=values)

        return changed(change)

    def values(*given: str) -> bytes:
        return changed(lambda survey: survey.properties[0].values.__setitem__(slice(None), given))

    yield "panels and properties", changed(lambda survey: None), ""
    yield "properties without panels", panels(0), ""
    yield "properties without a period", panels(0, ""), ""
    yield "panels without properties", properties(), ""
    yield "2 panels", panels(2), ""
    yield "64 panels", panels(64), ""
    yield "1 panel", panels(1), "panels"
    yield "65 panels", panels(65), "panels"
    yield "panels without a period", panels(16, ""), "panels"
    for text, why in (
        ("a" * 64, ""),
        ("a_1", ""),
        ("a" * 65, "properties"),
        ("", "properties"),
        ("1a", "properties"),
        ("Version", "properties"),
        ("version-2", "properties"),
        ("level", "properties"),
        ("map", "properties"),
        ("panel", "properties"),
        ("period", "properties"),
        ("mood", "properties"),
        ("platform", "properties"),
    ):
        yield f"a property by the name {text!r}", name(text), why
    yield "a property of one value", values("ios"), ""
    yield "a property without values", values(), "properties"
    yield "an empty value of a property", values("ios", ""), "properties"
    yield "a value of a property twice", values("ios", "android", "ios"), "properties"
    yield "a value of a property that ends with a space", values("ios "), "text"
    title = changed(lambda survey: setattr(survey.properties[1], "title", "A\u200bb"))
    yield "a title of a property with a zero-width space", title, "text"
    yield "a property of 64 values", properties(64), ""
    yield "a property of 65 values", properties(65), "properties"
    yield "8 properties", properties(*[1] * 8), ""
    yield "9 properties", properties(*[1] * 9, number=0), "properties"
    yield "4096 combinations of panels and properties", properties(15, 15), ""
    yield "4352 combinations of panels and properties", properties(15, 16), "properties"
    yield "4096 combinations of properties", properties(63, 63, number=0), ""
    yield "4160 combinations of properties", properties(63, 64, number=0), "properties"
