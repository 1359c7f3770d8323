"""Numbers that are protected by their value: what a plan may declare, and what a device checks."""

from dataclasses import replace
from fractions import Fraction

import pytest

from hearsay.choices import Agreed
from hearsay.plans.kinds import Numeric
from hearsay.plans.regions import uncovered
from hearsay_server.surveys import graded
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput, MeanTable, OneBitMean, PiecewiseMechanism, PolicyMeanTable
from ldp.core.policy import Policy
from ldp.planning import mean_design

WAGE = Numeric(0, 2000, clamp=True, sensitive=((800, 2000),))
AGE = Numeric(17, 42, clamp=False, step=1, resolution=((30, 2), (42, 4)), cap=2)
TABLE = mean_design.under(Policy.one_sided(16, range(6, 16), 1.0))

SURVEY = """
name = "wages"
[levels]
standard = 1.0
[[attributes]]
name = "wage"
[attributes.numeric]
low = 0
high = 2000
clamp = true
sensitive = [{ low = 0, high = 100 }, { low = 800, high = 2000 }]
"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sensitive": ((800, 2100),)}, r"must lie in 0\.\.2000, with .*, got 800\.\.2100"),
        ({"sensitive": ((-1, 5),)}, r"got -1\.\.5"),
        ({"sensitive": ((9, 8),)}, r"got 9\.\.8"),
        ({"sensitive": ((float("nan"), 8),)}, r"got nan\.\.8"),
        ({"sensitive": ((5, 9), (8, 11))}, r"must rise and not overlap, got 5\.\.9 before 8\.\.11"),
        ({"sensitive": ((5, 9), (1, 2))}, r"must rise and not overlap"),
        ({"sensitive": ((0, 2000),)}, "all numbers are sensitive: leave `sensitive` out"),
        ({"sensitive": tuple((i, i) for i in range(17))}, "16 sensitive regions, got 17"),
        ({"resolution": ((2000, 50),)}, "regions or a resolution, not both"),
        ({"cap": 2.0}, "cap = 2 needs a resolution"),
        ({"sensitive": (), "resolution": ((1000, 50),)}, "must reach 2000, got upto = 1000"),
        ({"sensitive": (), "resolution": ((9, 1), (9, 1))}, "got upto = 9 after 9"),
        ({"sensitive": (), "resolution": ((2001, 1),)}, "must rise from 0 to 2000"),
        ({"sensitive": (), "resolution": ((2000, 0),)}, r"within must be finite and > 0, got 0"),
        ({"sensitive": (), "resolution": ((2000, 500),), "cap": 0.5}, r"cap .* >= 1, got 0\.5"),
        ({"sensitive": (), "resolution": ((2000, 500),), "cap": 5.0}, "are 4 times `within` apart"),
        ({"sensitive": (), "resolution": ((2000, 3000),)}, r"are 0\.666667 times `within` apart"),
        ({"sensitive": (), "resolution": ((2000, 1),) * 17}, "16 parts at most, got 17"),
    ],
)
def test_regions_that_cannot_be_are_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        replace(WAGE, **change)  # type: ignore[arg-type]


def test_numbers_outside_the_regions_are_ordinary() -> None:
    assert WAGE.ordinary == ("0..800",)
    assert replace(WAGE, sensitive=((0, 9.5), (20, 30))).ordinary == ("9.5..20", "30..2000")
    assert AGE.ordinary == ()  # by distance all numbers are protected, by epsilon at most
    assert Numeric(0, 1, clamp=False).ordinary == ()


def test_ordinary_ranges_are_covered_by_the_allowed_ones_together() -> None:
    ranges = [(0.0, 100.0), (200.0, 300.0)]
    assert uncovered(ranges, ["0..300"]) == []
    assert uncovered(ranges, ["50..100", "-1e3..60", "200..300"]) == []
    assert uncovered(ranges, ["0..100"]) == [(200.0, 300.0)]
    assert uncovered(ranges, ["0..99.9", "200..250", "260..300"]) == ranges
    for text in ("0-800", "800", "..800", "9..8", "a..b", "0..nan"):
        with pytest.raises(InvalidInput, match=r"is written as '0\.\.800', got "):
            uncovered(ranges, [text])


def test_a_plan_that_reveals_more_than_the_app_allows_is_refused() -> None:
    from hearsay.plans.plan import parse

    plan = parse(surveys.resolve(surveys.from_toml(SURVEY, "wages.toml")))

    def check(*ranges: str) -> None:
        Agreed("wages", 1.0, may_reveal={"wage": frozenset(ranges)}).check(plan, frozenset())

    check("100..800")
    check("0..900")
    for ranges in ((), ("100..799.99",), ("200..800",)):
        with pytest.raises(InvalidInput, match=r"'wage' may reveal 100\.\.800; .*\['100\.\.800'\]"):
            check(*ranges)
    with pytest.raises(InvalidInput, match=r"may_reveal\['wage'\]: a range of numbers is written"):
        check("no")


def test_a_mechanism_must_protect_what_its_numbers_declare() -> None:
    WAGE.check(TABLE)
    WAGE.check(PiecewiseMechanism(1.0))  # protects all numbers alike, and these with them
    wider = replace(WAGE, sensitive=((799, 2000),))  # of which 799 is reported from another point
    plain = Numeric(0, 2000, clamp=True)
    plain.check(mean_design.under(Policy.uniform(16, 1.0)))
    loose = mean_design.under(Policy.one_sided(16, range(6, 16), 2.0))
    for domain, mechanism in (
        (wider, TABLE),
        (plain, TABLE),
        (AGE, TABLE),
        (AGE, OneBitMean(1.0)),
        (AGE, mean_design.plain(1.0, 25)),
        (WAGE, loose.from_integers(4.0, loose.integers | {"policy": _looser(loose)})),
    ):
        with pytest.raises(InvalidInput, match="keeps another policy than its numbers declare"):
            domain.check(mechanism)


def _looser(table: PolicyMeanTable) -> tuple[int, ...]:
    return Policy.one_sided(16, range(7, 16), 4.0).integers


def test_a_region_protects_every_number_that_is_reported_from_its_grid_points() -> None:
    policy = replace(WAGE, sensitive=((801, 1100),)).policy(1.0, 15)
    assert policy == Policy.one_sided(16, [6, 7, 8, 9], 1.0)  # 800, ..., 1200
    assert WAGE.policy(1.0, 15) == Policy.one_sided(16, range(6, 16), 1.0)
    low, high = (replace(WAGE, sensitive=(r,)) for r in ((0, 0), (2000, 2000)))
    assert low.policy(1.0, 15) == Policy.one_sided(16, [0], 1.0)
    assert high.policy(1.0, 15) == Policy.one_sided(16, [15], 1.0)


def test_whole_numbers_keep_their_distance_exactly() -> None:
    policy = AGE.policy(1.0, 25)
    assert policy is not None
    for a in range(26):
        for b in range(26):
            ages = sorted((17 + a, 17 + b))
            below = max(0, min(ages[1], 30) - min(ages[0], 30)) / Fraction(2)
            above = max(0, max(ages[1], 30) - max(ages[0], 30)) / Fraction(4)
            assert policy.distance(a, b) == pytest.approx(min(1.0, float(below + above) / 2))


def test_a_table_takes_the_grid_that_protects_the_least_in_vain() -> None:
    assert graded.steps(AGE) == 25  # its points
    fitting = graded.steps(replace(WAGE, sensitive=((500, 600), (1500, 1600))))
    assert fitting == 20
    assert graded.protections(replace(WAGE, sensitive=((501, 502),)))[0].startswith(
        "numbers in 500..583.333"
    )
    assert graded.steps(Numeric(0, 1, clamp=True, resolution=((1, 0.02),))) == 50
    with pytest.raises(InvalidInput, match=r"within = 0\.01 is less than .* take 0\.01587"):
        graded.steps(Numeric(0, 1, clamp=True, resolution=((1, 0.01),)))
    with pytest.raises(InvalidInput, match=r"the ordinary range 700\.\.701 lies between two"):
        graded.steps(replace(WAGE, sensitive=((600, 700), (701, 2000))))


def test_the_tables_of_a_survey_keep_epsilon_and_waste_none() -> None:
    for domain, epsilon in ((WAGE, 0.7), (WAGE, 0.01), (WAGE, 12.0), (AGE, 0.7)):
        table = graded.table(domain, epsilon)
        domain.check(table)
        assert isinstance(table, MeanTable)
        assert table.epsilon == epsilon
        assert 0.999 * table.promise.epsilon <= table.realised_epsilon <= epsilon
