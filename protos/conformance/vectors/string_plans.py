"""Plans with strings, as they are and changed."""

from collections.abc import Callable, Iterator

from hearsay.plans.plan import mechanism_message
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import KRR, RAPPOR, Mechanism, PrefixHashing, UnaryChain

Change = Callable[[plan_pb2.Plan], object]


def _plan() -> plan_pb2.Plan:
    """Return a plan that asks for a word, and for one of a list."""
    survey = survey_pb2.Survey(name="terms", title="Terms", levels={"strict": 2.0})
    word = survey.attributes.add(name="word")
    word.strings.alphabet, word.strings.longest = "abc", 8
    known = survey.attributes.add(name="known")
    known.strings.alphabet, known.strings.longest = "abc", 2
    known.strings.candidates.extend(["ab", "c"])
    plan = plan_pb2.Plan(survey=survey)
    level = plan.levels.add(name="strict", epsilon=2.0)
    for made in (PrefixHashing.over("abc", 8, 1.0), PrefixHashing.whole("abc", 2, 1.0)):
        level.mechanisms.add().CopyFrom(mechanism_message(made))
    return plan


def listed() -> Iterator[tuple[str, bytes, str]]:
    """Yield a note, a plan's bytes, and the reason why it is refused: "" where it is accepted."""

    def changed(change: Change) -> bytes:
        plan = _plan()
        change(plan)
        return bytes(plan.SerializeToString(deterministic=True))

    def by(made: Mechanism) -> Change:
        message = mechanism_message(made)
        return lambda plan: plan.levels[0].mechanisms[0].CopyFrom(message)

    def word(alphabet: str = "abc", longest: int = 8, *candidates: str) -> Change:
        def change(plan: plan_pb2.Plan) -> None:
            strings = plan.survey.attributes[0].strings
            strings.alphabet, strings.longest = alphabet, longest
            strings.candidates.extend(candidates)

        return change

    yield "words", changed(lambda plan: None), ""
    yield "words of a list that is found", changed(word("abc", 8, "abc", "cab")), ""
    yield "words seen whole", changed(by(PrefixHashing.whole("abc", 8, 1.0))), ""
    yield "words of a longer length", changed(word("abc", 9)), "fit"
    yield "words of other letters", changed(word("abd", 8)), "fit"
    yield "words of letters in another order", changed(word("acb", 8)), "fit"
    yield "categories for words", changed(by(KRR(3, 1.0))), "fit"
    yield "an alphabet of one", changed(word("a", 8)), "domain"
    yield "a letter twice", changed(word("aba", 8)), "domain"
    yield "a letter that is a space", changed(word("a b", 8)), "domain"
    yield "an alphabet that begins with a space", changed(word(" ab", 8)), "text"
    yield "a letter that cannot be seen", changed(word("ab\u200b", 8)), "text"
    yield "an alphabet that is not in NFC", changed(word("ae\u0301", 8)), "text"
    yield "letters that NFC joins", changed(word("\u1161\u1100", 8)), "domain"
    yield "words of 13 letters", changed(word("abc", 13)), "domain"
    yield "a candidate of other letters", changed(word("abc", 8, "abd")), "domain"
    yield "a candidate twice", changed(word("abc", 8, "ab", "ab")), "domain"
    yield "a long candidate", changed(word("abc", 8, "abcabcabc")), "domain"

    def together(plan: plan_pb2.Plan) -> None:
        plan.survey.views.add(attributes=["word", "known"])

    yield "a view of words", changed(together), "views"

    def remembered(plan: plan_pb2.Plan) -> None:
        plan.survey.period = "P1D"
        plan.survey.attributes[0].memo = 2.0

    yield "a memo of words that are found", changed(remembered), "memo"

    def kept(made: Mechanism, memo: float = 2.0, period: str = "P1D", *listed: str) -> Change:
        """Keep the second word, of a list, by a mechanism."""

        def change(plan: plan_pb2.Plan) -> None:
            plan.survey.period = period
            plan.survey.attributes[1].memo = memo
            plan.levels[0].mechanisms[1].CopyFrom(mechanism_message(made))
            if listed:
                del plan.survey.attributes[1].strings.candidates[:]
                plan.survey.attributes[1].strings.candidates.extend(filter(None, listed))

        return change

    rappor = RAPPOR.calibrate(1.0, 2.0, bits=32, cohorts=16)
    yield "words kept for life", changed(kept(rappor)), ""
    yield (
        "words kept for life by one cohort",
        changed(kept(RAPPOR.calibrate(1.0, 2.0, cohorts=1))),
        "",
    )
    yield "words kept at more than the memo", changed(kept(rappor, 1.9)), "memo"
    yield "words kept without a memo", changed(kept(rappor, 0.0)), "memo"
    yield "words kept without a period", changed(kept(rappor, 2.0, "")), "memo"
    yield "words kept of no list", changed(kept(rappor, 2.0, "P1D", "")), "fit"
    two, three = (RAPPOR.calibrate(1.0, 2.0, bits=n, hashes=1, cohorts=1) for n in (2, 3))
    yield "as many words as the bits of all cohorts", changed(kept(two)), "fit"
    yield "one word less than the bits of all cohorts", changed(kept(three)), ""
    many = RAPPOR.calibrate(1.0, 2.0, bits=32, cohorts=17)
    yield "words kept for life by 17 cohorts", changed(kept(many)), "fit"
    yield "words kept by a chain of bits", changed(kept(UnaryChain.l_sue(2, 1.0, 2.0))), "fit"
