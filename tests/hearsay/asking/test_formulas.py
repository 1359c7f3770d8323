"""Formulas of regressions: which columns they ask for, and what is not taken."""

import pytest

from hearsay.asking.columns import variable_name
from hearsay.asking.formulas import Model, parse
from hearsay.plans.kinds import Categorical, Numeric, SetOf
from hearsay.plans.plan import Attribute
from ldp import InvalidInput

ATTRIBUTES = {
    "wage": Attribute("wage", "", Numeric(0, 100, False)),
    "age": Attribute("age", "", Numeric(0, 100, False)),
    "sex": Attribute("sex", "", Categorical(("f", "m"))),
    "apps": Attribute("apps", "", SetOf(("chat", "maps"))),
    "town": Attribute("town", "", Categorical(("a", "b, or so", "c"))),
}


def linear(formula: str, success: str = "") -> Model:
    return parse(formula, ATTRIBUTES, logistic=False, success=success)


def columns(model: Model) -> list[list[tuple[str, str | None]]]:
    return [
        [(v.attribute, v.value if v.HasField("value") else None) for v in column.variables]
        for column in model.columns
    ]


def labels(model: Model) -> list[str]:
    return [column.label for column in model.columns]


def test_categories_are_told_apart_by_indicators_of_all_but_a_reference() -> None:
    model = linear("wage ~ age + C(sex) + C(town, Treatment('c'))")
    assert labels(model) == [
        "Intercept",
        "age",
        "C(sex)[T.m]",
        "C(town, Treatment('c'))[T.a]",
        "C(town, Treatment('c'))[T.b, or so]",
    ]
    assert columns(model) == [
        [],
        [("age", None)],
        [("sex", "m")],
        [("town", "a")],
        [("town", "b, or so")],
    ]
    assert variable_name(model.response) == "wage"


def test_products_are_of_the_columns_of_their_factors() -> None:
    model = linear("wage ~ sex * town + age:sex + age")
    assert "sex[T.m]:town[T.c]" in labels(model)
    assert "age:sex[T.m]" in labels(model) or "sex[T.m]:age" in labels(model)
    assert len(labels(model)) == len(set(labels(model))) == 1 + 1 + 2 + 2 + 1 + 1


def test_without_an_intercept_the_first_categories_are_all_there() -> None:
    model = linear("wage ~ age + sex + town - 1")
    assert labels(model) == ["age", "sex[f]", "sex[m]", "town[T.b, or so]", "town[T.c]"]


def test_the_response_is_a_number_or_a_value() -> None:
    model = parse("sex ~ town", ATTRIBUTES, logistic=True)
    assert variable_name(model.response) == "sex[m]"
    other = parse("town ~ sex", ATTRIBUTES, logistic=True, success="c")
    assert variable_name(other.response) == "town[c]"
    assert variable_name(linear("sex ~ age", success="f").response) == "sex[f]"


@pytest.mark.parametrize(
    ("formula", "success", "message"),
    [
        ("wage ~ log(age)", "", r"got 'log\(age\)': answers are randomised on the device"),
        ("wage ~ height", "", "a formula is of attributes"),
        ("wage ~ C(age)", "", "'age' is a number, which has no values: write age"),
        ("wage ~ C(apps)", "", "'apps' is chat, maps: a regression is on values and numbers"),
        ("wage ~ age:sex", "", r"needs the term age too: write age\*sex"),
        ("wage ~ C(town, Treatment('d'))", "", "'town' has no value 'd'; its values are"),
        ("wage ~ sex + C(sex)", "", "'sex' is in the formula in two ways"),
        ("wage ~ {age + 1}", "", r"got 'age \+ 1'"),
        ("wage ~ 0", "", "has nothing that explains"),
        ("wage ~ age | sex", "", "a formula explains one attribute by others"),
        ("wage + age ~ sex", "", "a formula explains one attribute by others"),
        ("age", "", "a formula explains one attribute by others"),
        ("wage ~ age + (", "", "cannot be read: Could not find matching context marker"),
        ("wage ~ 2*age", "", "cannot be read: Numeric literals"),
        ("town ~ age", "", "'town' has values, .*: say which one is explained"),
        ("town ~ age", "d", "'town' has no value 'd'"),
        ("wage ~ age", "5", "'wage' is a number: it has no value '5'"),
    ],
)
def test_what_cannot_be_asked_is_refused(formula: str, success: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        linear(formula, success)


def test_a_logistic_regression_explains_a_value() -> None:
    with pytest.raises(InvalidInput, match="a logistic regression explains a value"):
        parse("wage ~ sex", ATTRIBUTES, logistic=True)
    with pytest.raises(InvalidInput, match="say which one is explained"):
        parse("town ~ sex", ATTRIBUTES, logistic=True)
