"""A survey that cannot be is refused with the place and the reason."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hearsay import InvalidInput
from hearsay.plans import plan
from hearsay_server.surveys import catalogue
from hearsay_server.surveys import survey as surveys
from ldp.core.exact import certainly_at_most
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.planning.choice import choose
from ldp.testing import SeededCoins
from support import SURVEY


def resolve(toml: str) -> plan.Plan:
    return plan.parse(surveys.resolve(surveys.from_toml(toml, "test.toml")))


VALUES = 'values = ["no", "sometimes", "yes"]'
REFUSED = {
    "unknown key": ('title = "A', 'colour = "red"\ntitle = "A', "test.toml: unknown key 'colour'"),
    "unknown key of an attribute": (
        'mechanism = "krr"',
        'mechanism = "krr"\nshade = 1',
        "test.toml: attributes[0]: unknown key 'shade'",
    ),
    "wrong type": (
        "low = 20",
        'low = "young"',
        'test.toml: attributes[1]: numeric.low must be a number, got "young"',
    ),
    "a number in quotes": (
        "low = 20",
        'low = "20"',
        'test.toml: attributes[1]: numeric.low must be a number, got "20"',
    ),
    "an epsilon in quotes": (
        "strict = 1.0",
        'strict = "1.0"',
        'test.toml: levels.strict must be a number, got "1.0"',
    ),
    "a text for true or false": (
        "high = 60",
        'high = 60\nclamp = "yes"',
        'test.toml: attributes[1]: numeric.clamp must be true or false, got "yes"',
    ),
    "true for a number": (
        "high = 60",
        "high = true",
        "test.toml: attributes[1]: numeric.high must be a number, got true",
    ),
    "a number beyond all floats": (
        "high = 60",
        f"high = {10**400}",
        "attributes[1]: numeric.high must be a number that a float can hold, got a number of 1,329",
    ),
    "a number of too many digits": ("high = 60", f"high = {'6' * 5000}", "test.toml: Exceeds"),
    "a broken whole number": (
        "high = 60",
        "high = 60\nbins = 4.0",
        "test.toml: attributes[1]: numeric.bins must be a whole number, got 4.0",
    ),
    "a negative whole number": (
        "high = 60",
        "high = 60\nbins = -4",
        "attributes[1]: numeric.bins must be a whole number from 0 to 4,294,967,295, got -4",
    ),
    "unknown key of a domain": (
        "high = 60",
        "high = 60\nlowest = 3",
        "test.toml: attributes[1]: unknown key 'lowest' in numeric",
    ),
    "a key in another spelling": (
        'title = "A',
        'defaultLevel = "strict"\ntitle = "A',
        "test.toml: unknown key 'defaultLevel'",
    ),
    "a number for a table": (
        VALUES,
        'values = ["no", "yes"]\nclasses = 1',
        "attributes[0]: categorical.classes must be a table, got 1",
    ),
    "numbers for values": (
        VALUES,
        "values = [1, 2]",
        "test.toml: attributes[0]: categorical.values[0] must be a text in quotes, got 1",
    ),
    "one table for attributes": (
        SURVEY[SURVEY.index("[[attributes]]") :],
        "[attributes]\nname = 'age'",
        "attributes are written as [[attributes]] tables",
    ),
    "a number where a list belongs": (
        VALUES,
        "values = 3",
        "test.toml: attributes[0]: categorical.values must be a list, got 3",
    ),
    "no TOML": ("[levels]", "[levels", "line 4"),
    "twice the same key": ("strict = 1.0", "strict = 1.0\nstrict = 2.0", "line 6"),
    "duplicate attribute": (
        'name = "age"',
        'name = "smokes"',
        "attributes[1]: the name 'smokes' is taken by an earlier one",
    ),
    "name that is no identifier": (
        'name = "age"',
        'name = "Age!"',
        'attributes[1]: name: expected a lower-case letter, then letters, digits or "_", '
        "at most 64 in all, got 'Age!'",
    ),
    "no survey name": ('name = "health"', 'name = ""', "name: expected a lower-case letter"),
    "empty domain": (
        VALUES,
        "values = []",
        "attributes[0] (smokes): values must be at least two, got []",
    ),
    "one value": (
        VALUES,
        'values = ["no"]',
        "attributes[0] (smokes): values must be at least two, got ['no']",
    ),
    "duplicate value": (
        VALUES,
        'values = ["no", "yes", "no"]',
        "attributes[0] (smokes): values must differ, got 'no' twice",
    ),
    "empty value": (
        VALUES,
        'values = ["no", ""]',
        "attributes[0] (smokes): values must not be empty strings",
    ),
    "no domain": (
        "[attributes.numeric]\nlow = 20\nhigh = 60\n",
        "",
        "attributes[1] (age): needs a domain: categorical, numeric, set, ratings or strings",
    ),
    "two domains": (
        "[attributes.numeric]",
        '[attributes.categorical]\nvalues = ["a", "b"]\n[attributes.numeric]',
        "test.toml: attributes[1]: expected one of categorical, numeric, set, ratings, strings, "
        "got categorical and numeric",
    ),
    "zero epsilon": (
        "strict = 1.0",
        "strict = 0.0",
        "levels.strict: epsilon must be finite and > 0, got 0.0",
    ),
    "negative epsilon": (
        "strict = 1.0",
        "strict = -1",
        "levels.strict: epsilon must be finite and > 0, got -1.0",
    ),
    "infinite epsilon": (
        "strict = 1.0",
        "strict = inf",
        "levels.strict: epsilon must be finite and > 0, got inf",
    ),
    "epsilon that is no number": (
        "strict = 1.0",
        "strict = nan",
        "levels.strict: epsilon must be finite and > 0, got nan",
    ),
    "huge epsilon": (
        "strict = 1.0",
        "strict = 100.0",
        "levels.strict: epsilon must be at most 32, got 100.0",
    ),
    "no levels": ("[levels]\nstrict = 1.0\nopen = 4.0", "", "levels: at least one is needed"),
    "low above high": (
        "low = 20",
        "low = 61",
        "attributes[1] (age): low and high must be finite with low < high, got 61.0 and 60.0",
    ),
    "step that does not divide the range": (
        "high = 60",
        "high = 60\nstep = 7",
        "attributes[1] (age): whole steps must lead from 20 to 60, got a step of 7",
    ),
    "negative step": (
        "high = 60",
        "high = 60\nstep = -1",
        "attributes[1] (age): step must be finite and > 0, got -1.0",
    ),
    "step that is no number": (
        "high = 60",
        "high = 60\nstep = nan",
        "attributes[1] (age): step must be finite and > 0, got nan",
    ),
    "fine step": (
        "high = 60",
        "high = 60\nstep = 0.05",
        "attributes[1] (age): there may be 513 points, got 801: take a step of 0.078125 or more",
    ),
    "low equal to high": ("low = 20", "low = 60", "low < high, got 60.0 and 60.0"),
    "infinite range": ("low = 20", "low = -inf", "low < high, got -inf and 60.0"),
    "range that is no number": ("low = 20", "low = nan", "low < high, got nan and 60.0"),
    "zero weight": (
        'name = "age"',
        'name = "age"\nweight = 0',
        "attributes[1] (age): weight must be finite and > 0, got 0.0",
    ),
    "unknown mechanism": (
        'mechanism = "krr"',
        'mechanism = "magic"',
        "levels.strict, smokes: mechanism must be one of auto, krr, oue, sue, the, she, olh, blh, "
        "hrr, hadamard, subset, projective, cms, hcms, ordered, dbitflip, got 'magic'",
    ),
    "mechanism of another domain": (
        'mechanism = "hybrid"',
        'mechanism = "krr"',
        "levels.strict, age: mechanism must be one of auto, onebit, piecewise, hybrid, laplace, "
        "square_wave, mean_table, got 'krr'",
    ),
    "too many categories for the mechanism": (
        'mechanism = "krr"\n[attributes.categorical]\nvalues = ["no", "sometimes", "yes"]',
        'mechanism = "ordered"\n[attributes.categorical]\nvalues = '
        + str([f"v{i}" for i in range(65)]),
        "levels.strict, smokes: ordered: k must lie in 2..64, got 65",
    ),
    "mechanism for a life": (
        'mechanism = "krr"',
        'mechanism = "loloha"',
        "levels.strict, smokes: mechanism must be one of auto, krr,",
    ),
    "sensitive value that is none": (
        VALUES,
        'values = ["no", "sometimes", "yes"]\nsensitive = ["often"]',
        "attributes[0] (smokes): 'often' is sensitive or in a class, but no value",
    ),
    "sensitive value twice": (
        VALUES,
        'values = ["no", "sometimes", "yes"]\nsensitive = ["yes", "yes"]',
        "attributes[0] (smokes): 'yes' is in two classes, or twice in one",
    ),
    "sensitive values and classes": (
        VALUES,
        'values = ["no", "yes"]\nsensitive = ["yes"]\n'
        '[attributes.categorical.classes.hard]\nvalues = ["yes"]\nscale = 0.5',
        "attributes[0] (smokes): give sensitive values or classes, not both",
    ),
    "value in two classes": (
        VALUES,
        'values = ["no", "sometimes", "yes"]\n'
        '[attributes.categorical.classes.a]\nvalues = ["yes"]\nscale = 0.5\n'
        '[attributes.categorical.classes.b]\nvalues = ["no", "yes"]\nscale = 0.2',
        "attributes[0] (smokes): 'yes' is in two classes, or twice in one",
    ),
    "class without values": (
        VALUES,
        'values = ["no", "yes"]\n[attributes.categorical.classes.a]\nscale = 0.5',
        "attributes[0] (smokes): a class needs values",
    ),
    "scale above one": (
        VALUES,
        'values = ["no", "yes"]\n[attributes.categorical.classes.a]\nvalues = ["yes"]\nscale = 1.5',
        "attributes[0] (smokes): the scale of a class must lie in (0, 1], got 1.5",
    ),
    "scale of nothing": (
        VALUES,
        'values = ["no", "yes"]\n[attributes.categorical.classes.a]\nvalues = ["yes"]',
        "attributes[0] (smokes): the scale of a class must lie in (0, 1], got 0.0",
    ),
    "all values scaled down": (
        VALUES,
        'values = ["no", "yes"]\n'
        '[attributes.categorical.classes.a]\nvalues = ["no", "yes"]\nscale = 0.5',
        "attributes[0] (smokes): some values must have all of epsilon: give a class the scale 1",
    ),
    "mechanism where the policy decides": (
        VALUES,
        'values = ["no", "sometimes", "yes"]\nsensitive = ["yes"]',
        "levels.strict, smokes: mechanism must be auto where values are sensitive or have classes",
    ),
    "unknown budget": (
        'title = "A',
        'budget = "spend"\ntitle = "A',
        "budget must be split, sample or auto, got 'spend'",
    ),
    "cap of nothing": (
        'name = "age"',
        'name = "age"\ncap = 0',
        "attributes[1] (age): cap must be finite and > 0, got 0.0",
    ),
    "unknown default level": (
        'title = "A',
        'default_level = "standard"\ntitle = "A',
        "default_level: expected one of strict, open, got 'standard'",
    ),
    "bound on what levels differ by that is no share": (
        'title = "A',
        'levels_differ_at_most = 5\ntitle = "A',
        "levels_differ_at_most must lie in [0, 1], got 5.0",
    ),
    "default level that is no text": (
        'title = "A',
        'default_level = 1\ntitle = "A',
        "test.toml: default_level must be a text in quotes, got 1",
    ),
    "title with a character that cannot be seen": (
        'title = "A survey',
        'title = "A\u00adsurvey',
        "title: 'A\\xadsurvey of two questions' contains U+00AD, a format character",
    ),
    "value that can be written in another way": (
        '"sometimes"',
        '"de\u0301ja\u0300"',
        "attributes[0]: values: 'de\u0301ja\u0300' is not in Unicode's normal form NFC: U+0065",
    ),
    "unknown period": (
        'title = "A',
        'period = "daily"\ntitle = "A',
        "period must be empty or one of PT1H, P1D, P1W, P1M, P1Y, got 'daily'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_survey_is_refused_with_place_and_reason(case: str) -> None:
    given, instead, message = REFUSED[case]
    assert SURVEY.count(given) == 1
    with pytest.raises(InvalidInput, match=re.escape(message)):
        resolve(SURVEY.replace(given, instead))


@pytest.mark.parametrize("field", ["results", "answers"])
def test_what_is_not_public_shows_and_asks_nothing(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"page: {field} = true needs public = true"):
        resolve(f"{SURVEY}\n[page]\n{field} = true\n")


def test_a_page_asks_nothing_that_a_browser_may_never_answer() -> None:
    answers = "\n[page]\npublic = true\nanswers = true\n"
    with pytest.raises(InvalidInput, match="answers = true needs a survey with a period"):
        resolve(SURVEY + answers)
    daily = SURVEY.replace('title = "A', 'period = "P1D"\ntitle = "A')
    assert resolve(daily + answers).period == "P1D"
    with pytest.raises(InvalidInput, match=r"needs a survey without \[sealing\]"):
        resolve(daily + answers + "[sealing]\n")


def test_a_page_is_no_part_of_the_plan() -> None:
    public = f"{SURVEY}\n[page]\npublic = true\nresults = true\n"
    assert resolve(public).revision == resolve(SURVEY).revision
    message = plan.message(surveys.resolve(surveys.from_toml(SURVEY, "test.toml")))
    message.survey.page.public = True
    with pytest.raises(InvalidInput, match="a plan has no page"):
        plan.parse(message.SerializeToString(deterministic=True))


def test_no_attributes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="attributes: at least one is needed"):
        resolve('name = "empty"\n[levels]\nstrict = 1.0\n')


def test_a_reading_error_names_the_file() -> None:
    with pytest.raises(InvalidInput, match=r"^test\.toml: "):
        surveys.from_toml("colour = 1", "test.toml")


def test_the_same_survey_resolves_to_the_same_bytes() -> None:
    first = surveys.resolve(surveys.from_toml(SURVEY, "a"))
    turned = SURVEY.replace("strict = 1.0\nopen = 4.0", "open = 4.0\nstrict = 1.0")
    assert surveys.resolve(surveys.from_toml(turned, "b")) == first


def test_a_survey_may_name_the_level_that_is_used_until_one_is_chosen() -> None:
    assert resolve(SURVEY).default_level == ""
    named = SURVEY.replace('title = "A', 'default_level = "open"\ntitle = "A')
    assert resolve(named).default_level == "open"
    assert resolve(named).revision != resolve(SURVEY).revision
    assert surveys.levels_in_words(resolve(named)) == "strict = 1, open = 4 (default)"
    assert surveys.levels_in_words(resolve(SURVEY)) == "strict = 1, open = 4"


def test_a_records_epsilon_is_split_by_weight() -> None:
    resolved = resolve(SURVEY.replace('name = "age"', 'name = "age"\nweight = 3'))
    for level in resolved.levels.values():
        smokes, age = (Fraction(m.epsilon) for m in level.mechanisms.values())
        assert float(age / smokes) == pytest.approx(3, rel=1e-15)
        assert smokes + age <= Fraction(level.epsilon)


def test_auto_takes_the_smallest_predicted_variance() -> None:
    many = ", ".join(f'"{i}"' for i in range(40))
    automatic = SURVEY.replace('mechanism = "krr"', "").replace('mechanism = "hybrid"', "")
    few = resolve(automatic)
    assert {level.mechanisms["smokes"].name for level in few.levels.values()} == {"krr"}
    numbers = {name: level.mechanisms["age"].name for name, level in few.levels.items()}
    assert numbers == {"strict": "mean_table", "open": "mean_table"}  # at epsilon 0.5 and 2
    wide = resolve(automatic.replace('"no", "sometimes", "yes"', many))
    for level in wide.levels.values():
        mechanism = level.mechanisms["smokes"]
        assert mechanism == choose(40, mechanism.epsilon, max_bytes=32).mechanism
        assert mechanism.name != "krr"


@pytest.mark.parametrize("k", [2, 5, 16, 40, 100, 257, 512, 1000, 4096])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.0, 4.0])
def test_auto_stays_near_the_limit_in_few_bytes(k: int, epsilon: float) -> None:
    choice = catalogue.automatic(k, epsilon)
    assert choice.mechanism.code_bytes <= 32
    assert choice.variance <= 1.02 * choice.limit


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 6.0, 8.0])
def test_auto_takes_the_mean_of_least_variance_for_the_worst_number(epsilon: float) -> None:
    grid = np.linspace(-1, 1, 257)
    worst = {
        name: catalogue.numeric(name, epsilon).report_variance(grid).max()
        for name in catalogue.NUMERIC
    }
    assert worst["auto"] <= min(worst.values()) * 1.001


@pytest.mark.parametrize(
    "name", ["auto", "piecewise", "hybrid", "laplace", "square_wave", "mean_table"]
)
def test_with_a_step_a_mechanism_has_the_points_as_its_grid(name: str) -> None:
    text = SURVEY.replace("high = 60", "high = 60\nstep = 1").replace(
        'mechanism = "hybrid"', f'mechanism = "{name}"'
    )
    stepped = plan.parse(surveys.resolve(surveys.from_toml(text, "test.toml")))
    mechanism = stepped.level("open").mechanisms["age"]
    assert isinstance(mechanism, MeanMechanism)
    assert mechanism.steps == 40
    domain = stepped.attributes["age"].domain
    ages = [domain.encode(age) for age in range(20, 61)]
    rounded = mechanism._round(np.array(ages, dtype=float), SeededCoins(1))
    assert rounded.tolist() == list(range(41))  # none is rounded to a neighbour


def test_one_bit_has_no_grid_to_give_it_a_step() -> None:
    assert catalogue.numeric("onebit", 1.0, 40) == catalogue.numeric("onebit", 1.0)


def test_what_a_plan_cannot_carry_is_not_resolved() -> None:
    # Below epsilon 0.61 one bit is always taken, and a share of 2**64 is no 64-bit integer.
    low = resolve(SURVEY)
    assert low.levels["strict"].mechanisms["age"].name == "onebit"
    assert low.levels["open"].mechanisms["age"].name == "hybrid"


DELICATE = SURVEY.replace('mechanism = "krr"', "").replace(
    'values = ["no", "sometimes", "yes"]', 'values = ["no", "sometimes", "yes"]\n{}'
)
SENSITIVE = DELICATE.format('sensitive = ["sometimes", "yes"]')
CLASSES = DELICATE.format('[attributes.categorical.classes.hard]\nvalues = ["yes"]\nscale = 0.25')


def test_sensitive_values_are_protected_and_others_may_be_revealed() -> None:
    for level in resolve(SENSITIVE).levels.values():
        mechanism = level.mechanisms["smokes"]
        channel = mechanism.channel()
        assert channel.epsilon == math.inf
        for column in zip(*channel.rows, strict=True):
            no, sometimes, yes = column
            assert max(sometimes, yes) == 0 or min(column) > 0  # or it tells of the no for sure
            if sometimes or yes:
                worst = max(yes / sometimes, sometimes / yes, yes / no, sometimes / no)
                assert certainly_at_most(worst, mechanism.epsilon)
        assert any(column[0] and not column[1] for column in zip(*channel.rows, strict=True))


def test_classes_have_their_share_of_epsilon() -> None:
    for level in resolve(CLASSES).levels.values():
        mechanism = level.mechanisms["smokes"]
        no, sometimes, yes = mechanism.channel().rows
        quarter = mechanism.epsilon / 4

        def worst(a: tuple[Fraction, ...], b: tuple[Fraction, ...]) -> Fraction:
            return max(max(p / q, q / p) for p, q in zip(a, b, strict=True))

        for other in (no, sometimes):
            assert certainly_at_most(worst(yes, other), quarter)
        assert math.log(worst(yes, no)) > 0.999 * quarter
        # By way of "yes" the two cannot be further apart than twice as far as each is from it.
        assert math.log(worst(no, sometimes)) == pytest.approx(2 * quarter, rel=1e-3)


def test_a_sampled_attribute_has_all_of_epsilon() -> None:
    sampled = resolve(SURVEY.replace('title = "A', 'budget = "sample"\ntitle = "A'))
    for level in sampled.levels.values():
        assert {m.epsilon for m in level.mechanisms.values()} == {level.epsilon}
        assert sum(level.budget.chances) == 1 << 64
        assert level.budget.record_epsilon == level.epsilon


def test_a_cap_holds_and_leaves_the_rest_to_the_others() -> None:
    capped = resolve(SURVEY.replace('name = "age"', 'name = "age"\ncap = 0.25'))
    for level in capped.levels.values():
        assert level.mechanisms["age"].epsilon == 0.25
        assert level.mechanisms["smokes"].epsilon == pytest.approx(level.epsilon - 0.25)


def test_auto_takes_the_budget_of_less_predicted_error() -> None:
    automatic = SURVEY.replace('title = "A', 'budget = "auto"\ntitle = "A')
    for level in resolve(automatic).levels.values():
        assert level.budget.reported == 1  # two attributes at epsilon 1 or 4: better one of them
    lavish = resolve(automatic.replace("= 1.0", "= 28.0").replace("open = 4.0", "open = 30.0"))
    assert lavish.levels["open"].budget.reported == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_is_read_as_an_editor_of_any_system_writes_it(
    encoding: str, end: str, tmp_path: Path
) -> None:
    file = tmp_path / "survey.toml"
    text = 'name = "t"\n[levels]\nusual = 1\n[[attributes]]\nname = "é"\n'
    file.write_bytes(text.replace("\n", end).encode(encoding))
    assert surveys.from_file(file) == surveys.from_toml(text, "t")
