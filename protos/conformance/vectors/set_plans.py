"""Plans with sets and ratings, as they are and changed."""

from collections.abc import Callable, Iterator

from hearsay.plans.plan import mechanism_message
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import KRR, Mechanism, SetBits, SetSelection

Change = Callable[[plan_pb2.Plan], object]


def _plan() -> plan_pb2.Plan:
    """Return a plan that asks for a set, for another one by bits, and for ratings."""
    survey = survey_pb2.Survey(name="phones", title="Phones", levels={"strict": 3.0})
    apps = survey.attributes.add(name="apps")
    apps.set.values.extend(["mail", "maps", "chess"])
    apps.set.at_most, apps.set.clamp = 2, True
    pets = survey.attributes.add(name="pets")
    pets.set.values.extend(["cat", "dog"])
    stars = survey.attributes.add(name="stars")
    stars.ratings.keys.extend(["food", "staff"])
    stars.ratings.low, stars.ratings.high, stars.ratings.at_most = 1.0, 5.0, 1
    plan = plan_pb2.Plan(survey=survey)
    level = plan.levels.add(name="strict", epsilon=3.0)
    for made in (SetSelection(3, 1.0, 2, 1, 1), SetBits(2, 1.0), SetSelection(4, 1.0, 1, 1, 1)):
        level.mechanisms.add().CopyFrom(mechanism_message(made))
    return plan


def listed() -> Iterator[tuple[str, bytes, str]]:
    """Yield a note, a plan's bytes, and the reason why it is refused: "" where it is accepted."""

    def changed(change: Change) -> bytes:
        plan = _plan()
        change(plan)
        return bytes(plan.SerializeToString(deterministic=True))

    def by(position: int, made: Mechanism) -> Change:
        message = mechanism_message(made)
        return lambda plan: plan.levels[0].mechanisms[position].CopyFrom(message)

    def apps(**fields: int) -> Change:
        return lambda plan: [
            setattr(plan.survey.attributes[0].set, name, value) for name, value in fields.items()
        ]

    def stars(**fields: float) -> Change:
        return lambda plan: [
            setattr(plan.survey.attributes[2].ratings, name, value)
            for name, value in fields.items()
        ]

    yield "sets and ratings", changed(lambda plan: None), ""
    yield "a set of at most 3", changed(apps(at_most=3)), "fit"
    yield "a set of at most 4", changed(apps(at_most=4)), "domain"
    yield "a set of any size", changed(apps(at_most=0)), "fit"
    yield "a set that is not clamped", changed(apps(clamp=0)), ""
    yield "a set by bits", changed(by(0, SetBits(3, 1.0))), ""
    yield "a set by bits of others", changed(by(0, SetBits(4, 1.0))), "fit"
    yield "a selection of others", changed(by(0, SetSelection(4, 1.0, 2, 1, 1))), "fit"
    yield "a selection of any size", changed(by(1, SetSelection(2, 1.0, 2, 1, 1))), ""
    yield "a selection of one of any size", changed(by(1, SetSelection(2, 1.0, 1, 1, 1))), "fit"
    yield "categories for a set", changed(by(0, KRR(3, 1.0))), "fit"
    yield "ratings by bits", changed(by(2, SetBits(4, 1.0))), "fit"
    yield "a selection of unsigned keys", changed(by(2, SetSelection(2, 1.0, 1, 1, 1))), "fit"
    yield "a selection of two ratings", changed(by(2, SetSelection(4, 1.0, 2, 1, 1))), "fit"
    yield "a scale that is none", changed(stars(low=5.0)), "domain"
    yield "an endless scale", changed(stars(high=float("inf"))), "domain"
    yield "ratings of at most 3 of 2", changed(stars(at_most=3)), "domain"

    def keys(*names: str) -> Change:
        def change(plan: plan_pb2.Plan) -> None:
            del plan.survey.attributes[2].ratings.keys[:]
            plan.survey.attributes[2].ratings.keys.extend(names)

        return change

    yield "ratings of nothing", changed(keys()), "domain"
    yield "a key twice", changed(keys("food", "food")), "domain"
    yield "an empty key", changed(keys("food", "")), "domain"
    yield "a key with a space behind", changed(keys("food", "staff ")), "text"

    def alone(plan: plan_pb2.Plan) -> None:
        del plan.survey.attributes[0].set.values[1:]

    yield "a set of one value", changed(alone), "domain"

    def remembered(plan: plan_pb2.Plan) -> None:
        plan.survey.period = "P1D"
        plan.survey.attributes[0].memo = 1.0

    yield "a memo of a set", changed(remembered), "memo"
