"""What a survey declares as public: properties, and panels."""

from itertools import product

import pytest

from hearsay.plans.properties import NO_PROPERTIES, Properties, Property, properties_of
from hearsay.v1 import survey_pb2
from ldp import InvalidInput

PLATFORM = Property("platform", "Platform", ("ios", "android"))
VERSION = Property("version", "", ("1", "2", "3"))
BOTH = Properties((PLATFORM, VERSION))


def survey(panels: int = 0, unit: str = "P1D", **lists: list[str]) -> survey_pb2.Survey:
    declared = [survey_pb2.Property(name=name, values=values) for name, values in lists.items()]
    attribute = survey_pb2.Attribute(name="smokes")
    return survey_pb2.Survey(
        period=unit, panels=panels, properties=declared, attributes=[attribute]
    )


def test_every_combination_of_values_is_a_group_of_its_own() -> None:
    combinations = list(product(("", "ios", "android"), ("", "1", "2", "3")))
    groups = [BOTH.group(values) for values in combinations]
    assert len(set(groups)) == BOTH.combinations == len(combinations) == 12
    assert [tuple(BOTH.values_of(group).values()) for group in groups] == combinations
    assert tuple(groups) == BOTH.groups({})
    assert BOTH.group(("ios", "")) == '["ios",""]'


def test_without_properties_there_is_one_group_without_a_name() -> None:
    assert not NO_PROPERTIES
    assert (NO_PROPERTIES.group(()), NO_PROPERTIES.groups({})) == ("", ("",))
    assert NO_PROPERTIES.values_of("") == {}


def test_groups_are_selected_by_the_values_of_properties() -> None:
    assert BOTH.groups({"platform": ["ios"]}) == tuple(
        BOTH.group(("ios", version)) for version in ("", "1", "2", "3")
    )
    assert BOTH.groups({"version": ["2", ""], "platform": ["ios", "ios"]}) == (
        BOTH.group(("ios", "2")),
        BOTH.group(("ios", "")),
    )


def test_a_property_that_an_app_does_not_give_is_empty() -> None:
    assert BOTH.checked({"version": "2"}) == ("", "2")
    assert BOTH.checked({}) == ("", "")


def test_a_value_that_the_survey_does_not_declare_is_empty_and_told() -> None:
    given = {"platform": "linux", "version": "2"}
    assert BOTH.checked(given) == ("", "2")
    (wrong,) = BOTH.undeclared(given)
    assert wrong.startswith("the property 'platform' has no value 'linux'; the survey declares ios")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"colour": "red"}, "no property 'colour'; it declares platform, version"),
        ({"platform": "linux"}, "'platform' has no value 'linux'; the survey declares ios, and"),
    ],
)
def test_what_is_not_declared_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        BOTH.groups({name: [value] for name, value in given.items()})


@pytest.mark.parametrize("values", [(), ("ios",), ("ios", "1", "")])
def test_another_number_of_values_is_refused(values: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match=f"expected 2 values .* got {len(values)}"):
        BOTH.group(values)


def test_what_a_survey_may_tell_in_the_clear_is_bounded() -> None:
    numbers = [str(number) for number in range(63)]
    assert properties_of(survey(64, a=numbers)).combinations == 64
    with pytest.raises(InvalidInput, match="with 64 panels, have 4160 combinations of values"):
        properties_of(survey(64, a=[*numbers, "63"]))
    with pytest.raises(InvalidInput, match="properties have 262144 combinations of values"):
        properties_of(survey(a=numbers, b=numbers, c=numbers))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (survey(1), "panels must be 2 to 64, or left out, got 1"),
        (survey(65), "panels must be 2 to 64, or left out, got 65"),
        (survey(2, ""), "panels need a survey with a period"),
        (survey(Platform=["a"]), r"properties\[0\]: the name of a property is a lower-case letter"),
        (survey(period=["a"]), r"properties\[0\]: a property cannot be called level, map, panel"),
        (survey(smokes=["a"]), r"properties\[0\]: the name 'smokes' is taken"),
        (survey(a=[]), r"properties\[0\]: the property 'a' needs 1 to 64 values, got 0"),
        (survey(a=["x"] * 65), r"properties\[0\]: the property 'a' needs 1 to 64 values, got 65"),
        (survey(a=["x", ""]), "must not be empty: an empty one stands for an app that gave none"),
        (survey(a=["x", "y", "x"]), "must differ, got 'x' twice"),
        (survey(**{f"p{n}": ["x"] for n in range(9)}), "at most 8 properties, got 9"),
    ],
)
def test_what_cannot_be_declared_is_refused(given: survey_pb2.Survey, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        properties_of(given)


def test_two_properties_have_two_names() -> None:
    given = survey(a=["x"])
    given.properties.add(name="a", values=["y"])
    with pytest.raises(InvalidInput, match=r"properties\[1\]: the name 'a' is taken"):
        properties_of(given)
