"""Sets and ratings, from a device's answers to what an analyst is told."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import DAYS, Collected, collected_from
from command import hearsay

from hearsay import Analyst, InvalidInput
from hearsay.plans.kinds import Ratings, SetOf
from hearsay.plans.plan import Plan
from hearsay_server.commands import codegen, codegen_typescript
from hearsay_server.demo import play, sources
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.describe import describe
from hearsay_server.surveys.question import planned
from ldp import Coins, SetBits, SetSelection
from ldp.estimating.ratings import RatedShares

APPS = ["mail", "maps", "chess", "news", "bank", "radio", "chat", "photo", "music", "notes"]
KEYS = ["food", "staff", "rooms"]
TOML = f"""
name = "phones"
title = "Which apps, and how were they?"
period = "P1D"
[levels]
strict = 6.0
open = 9.0
[[attributes]]
name = "apps"
title = "Which apps do you use?"
mechanism = "set_pairs"
[attributes.set]
values = {json.dumps(APPS)}
at_most = 2
clamp = true
[[attributes]]
name = "stars"
title = "How do you rate the hotel?"
[attributes.ratings]
keys = {json.dumps(KEYS)}
low = 1
high = 5
at_most = 2
[[attributes]]
name = "pets"
mechanism = "set_bits"
[attributes.set]
values = ["cat", "dog", "bird"]
[[attributes]]
name = "sure"
[attributes.categorical]
values = ["yes", "no"]
"""
ROWS = 1500
APP_SETS = np.array([[0, 1], [0, -1], [-1, -1], [2, 3], [0, 1]])
STAR_SETS = np.array([[0, 3], [0, -1], [1, 2], [-1, -1]])  # food +, staff -; food +; ...; none
PET_SETS = np.array([[0, -1, -1], [0, 1, 2], [-1, -1, -1], [1, -1, -1]])


def people(plan: Plan, seed: int) -> dict[str, Any]:
    source = np.random.default_rng(seed)
    kinds = {"apps": APP_SETS, "stars": STAR_SETS, "pets": PET_SETS}
    found = {name: sets[source.integers(0, len(sets), ROWS)] for name, sets in kinds.items()}
    return {**found, "sure": source.integers(0, 2, ROWS)}


@pytest.fixture(scope="module")
def analyst(address: str) -> Iterator[Analyst]:
    with Analyst(address) as found:
        yield found


@pytest.fixture(scope="module")
def collected(address: str, analyst: Analyst) -> Collected:
    return collected_from(people, TOML, address, analyst)


def near(table: Any, truth: dict[str, float]) -> None:
    for label, share in truth.items():
        row = table.loc[label]
        assert abs(row["estimate"] - share) < 4 * row["standard_error"], label
        assert row["low"] <= row["estimate"] <= row["high"] or row["estimate"] < 0


def asked(collected: Collected, *arguments: object, code: int = 0) -> str:
    view, *given = arguments
    done = hearsay("ask", view, "phones", *given, "--target", collected.address, COLUMNS="200")
    assert done.returncode == code, done.stderr
    return done.stdout if not code else done.stderr


def test_the_plan_has_a_mechanism_for_each_domain(collected: Collected) -> None:
    plan: Plan = collected.plan
    assert isinstance(plan.attributes["apps"].domain, SetOf)
    assert isinstance(plan.attributes["stars"].domain, Ratings)
    for level in plan.levels.values():
        apps, stars, pets = (level.mechanisms[name] for name in ("apps", "stars", "pets"))
        assert isinstance(apps, SetSelection)
        assert (apps.items, apps.most) == (10, 2)
        assert isinstance(stars, SetSelection)
        assert (stars.items, stars.most) == (6, 2)
        assert isinstance(pets, SetBits)


def test_shares_of_items_at_levels_over_days(collected: Collected) -> None:
    table = collected.analyst.estimate("phones", "apps").to_frame()
    near(table, {"mail": 0.6, "maps": 0.4, "chess": 0.2, "news": 0.2, "bank": 0, "notes": 0})
    assert table.attrs["statistic"] == "frequency"
    assert table.attrs["method"] == "stratified"
    assert table.attrs["homogeneity"] > 0.001
    assert table.attrs["repeats"] == pytest.approx(2)
    assert (table["alike_high"] - table["alike_low"] < table["high"] - table["low"]).any()
    near(
        collected.analyst.estimate("phones", "pets").to_frame(),
        {"cat": 0.5, "dog": 0.5, "bird": 0.25},
    )
    pooled = collected.analyst.estimate(
        "phones", "apps", method="inverse_variance", top=2
    ).to_frame()
    assert list(pooled.index) == ["mail", "maps"]
    assert "mail" in asked(collected, "estimate", "apps", "--top", 3)


def test_sizes_and_their_mean(collected: Collected) -> None:
    with pytest.warns(UserWarning, match="larger sets count as 2 items"):
        answer = collected.analyst.set_sizes("phones", "apps")
    sizes, mean = answer.to_frame(), answer.to_frame("mean")
    near(sizes, {"0": 0.2, "1": 0.2, "2": 0.6})
    near(mean, {"mean": 1.4})
    assert (list(sizes.index), list(mean.index)) == (["0", "1", "2"], ["mean"])
    assert (sizes.attrs["statistic"], mean.attrs["statistic"]) == ("share", "mean size")
    units = [table.column("estimate").unit for table in answer.tables]
    assert units == ["share", "own"]
    with pytest.warns(UserWarning, match="set_bits, which tell the mean size alone"):
        bits = collected.analyst.set_sizes("phones", "pets").to_frame()
    near(bits, {"mean": 1.25})
    assert list(bits.index) == ["mean"]
    assert len(asked(collected, "sizes", "apps", "--csv").splitlines()) == 1 + 3
    assert len(asked(collected, "sizes", "apps", "--csv", "--table", "mean").splitlines()) == 1 + 1
    assert "Mean size: 1." in asked(collected, "sizes", "apps")
    with pytest.raises(InvalidInput, match="no set of items: it has no sizes"):
        collected.analyst.set_sizes("phones", "sure").to_frame()


def test_ratings_and_who_rated(collected: Collected, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="too few people rated rooms") as warned:
        table = collected.analyst.ratings("phones", "stars").to_frame()
    assert warned[0].filename == __file__  # where it was asked, and not within the package
    # Of four kinds one rates food low and staff high, one food high and staff low, one food high.
    for key, share, mean in (("food", 0.75, 1 + 4 * 2 / 3), ("staff", 0.5, 3.0)):
        row = table.loc[key]
        assert abs(row["share"] - share) < 4 * row["share_standard_error"]
        assert abs(row["estimate"] - mean) < 4 * row["standard_error"]
        assert row["low"] < row["estimate"] < row["high"]
        assert row["share_low"] < row["share"] < row["share_high"]
    assert math.isnan(table.loc["rooms", "estimate"])
    assert table.loc["rooms", "share_low"] == 0
    assert table.attrs["statistic"] == "rating"
    shown = asked(collected, "estimate", "stars", "--plot", tmp_path / "stars.png")
    assert "who rated" in shown
    assert (tmp_path / "stars.png").stat().st_size > 1000
    columns = json.loads(asked(collected, "estimate", "stars", "--json"))["tables"]["rows"][
        "columns"
    ]
    assert columns["estimate"]["values"][2] is None
    assert columns["standard_error"]["values"][2] is None
    alike = asked(collected, "estimate", "stars", "--method", "inverse_variance", "--csv")
    assert alike.splitlines()[0].endswith(
        "share,share_standard_error,share_low,share_high,confidence,reports"
    )


def test_pairs_of_items(collected: Collected, tmp_path: Path) -> None:
    mechanism = collected.plan.levels["strict"].mechanisms["apps"]
    assert isinstance(mechanism, SetSelection)
    assert mechanism.size > 1
    pairs = collected.analyst.pairs("phones", "apps", top=45).to_frame()
    near(pairs, {("mail", "maps"): 0.4, ("chess", "news"): 0.2, ("mail", "chess"): 0.0})  # type: ignore[dict-item]
    best = pairs.iloc[0]
    assert pairs.index[0] == ("mail", "maps")
    assert best["independent"] == pytest.approx(0.24, abs=0.1)
    shown = asked(collected, "pairs", "apps", "--top", 2, "--plot", tmp_path / "pairs.svg")
    assert "if independent" in shown
    assert "43 more rows are not shown" in shown
    assert asked(collected, "pairs", "apps", "--csv").count("\n") == 46
    document = json.loads(asked(collected, "pairs", "apps", "--top", 20, "--json"))
    assert document["tables"]["rows"]["left_out"] == 25
    one_day = collected.analyst.pairs(
        "phones", "apps", periods=[DAYS[0]], levels=["open"]
    ).to_frame()
    assert one_day.attrs["reports"] == pytest.approx(ROWS, abs=ROWS / 2)
    for attribute, reason in (("pets", "tells which items go together"), ("sure", "no pairs")):
        with pytest.raises(InvalidInput, match=reason):
            collected.analyst.pairs("phones", attribute).to_frame()


def test_levels_are_compared_item_by_item(collected: Collected) -> None:
    for attribute, statistic in (("apps", "frequency"), ("stars", "share who rated")):
        table = collected.analyst.compare(
            "phones", attribute, {"levels": ["strict"]}, {"levels": ["open"]}
        ).to_frame()
        assert (table["adjusted_p_value"] > 1e-3).all()
        assert table.attrs["statistic"] == statistic


@pytest.mark.parametrize(
    ("attribute", "options", "reason"),
    [
        ("apps", {"consistency": "norm-sub"}, "need not sum to one"),
        ("apps", {"recover": 0.1}, "need not sum to one"),
        ("stars", {"forged": 3}, "what forged reports can do"),
        ("pets", {"forged": 3}, "set_bits is not known"),
        ("stars", {"sizes": True}, "are ratings"),
        ("apps", {"sizes": True, "forged": 3}, "is not known"),
        ("apps", {"sizes": True, "top": 1}, "with all their rows"),
        ("apps", {"method": "mle"}, "mle and gls are for"),
    ],
)
def test_what_sets_cannot_be_asked_is_refused(
    collected: Collected, attribute: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        collected.analyst.estimate("phones", attribute, **options).to_frame()


def test_other_questions_are_refused(collected: Collected) -> None:
    with pytest.raises(InvalidInput, match="people may have several"):
        collected.analyst.sums("phones", "apps", [["mail", "maps"]]).to_frame()
    with pytest.raises(InvalidInput, match="tests are for"):
        collected.analyst.suspicions("phones", "apps").to_frame()
    with pytest.raises(InvalidInput, match="is a set of items: ask"):
        collected.analyst.distribution("phones", "apps").to_frame()


def test_forged_reports_can_move_an_item(collected: Collected) -> None:
    table = collected.analyst.estimate(
        "phones", "apps", forged=100, method="inverse_variance"
    ).to_frame()
    assert (table["shift_up"] > 0).all()


def test_attributes_and_rows_of_sets(collected: Collected) -> None:
    kinds = collected.analyst.attributes("phones")
    assert kinds.loc["apps", "kind"] == "set"
    assert kinds.loc["apps", "values"] == tuple(APPS)
    assert (kinds.loc["stars", "kind"], kinds.loc["stars", "high"]) == ("ratings", 5)
    rows = collected.analyst.rows("phones")
    assert len(rows) == 4 * ROWS
    mechanism = collected.plan.levels["strict"].mechanisms["apps"]
    first = rows[rows["apps__level"] == "strict"]["apps"].iloc[0]
    assert len(bytes(first)) == mechanism.code_bytes


# --- before and beside a survey ----------------------------------------------------------------


def test_explain_says_what_sets_and_ratings_will_tell(tmp_path: Path) -> None:
    file = tmp_path / "phones.toml"
    file.write_text(TOML)
    shown = hearsay("survey", "explain", file, "--users", 300, COLUMNS="300").stdout
    for line in (
        "apps: every set from every other, the empty one too, by epsilon",
        "stars: every table of ratings from every other, the empty one too, by epsilon",
        "apps: at most 2 items; of more, 2 drawn at random count, and shares come out too small",
        "stars: at most 2 ratings; an answer of more is replaced by a random one",
        "apps at strict: sizes and pairs",
        "pets at open: the mean number of items, neither sizes nor pairs",
    ):
        assert line in shown
    assert re.search(
        r"stars at strict: the mean of a key that 33% rate .*; means need [\d,]+", shown
    )
    file.write_text(TOML.replace("strict = 6.0", "strict = 0.5"))
    poor = hearsay("survey", "explain", file, "--users", 300, COLUMNS="300").stdout
    assert re.search(r"stars at strict: no mean of a key that 33% rate: that takes [\d,]+", poor)


def test_the_predicted_error_of_an_item_is_that_of_the_mechanism(collected: Collected) -> None:
    apps, stars = (collected.plan.levels["strict"].mechanisms[name] for name in ("apps", "stars"))
    domain = collected.plan.attributes["apps"].domain
    assert isinstance(domain, SetOf)
    assert planned(domain, apps) == pytest.approx(float(apps.variance(2 / 20, 1)))
    rated = collected.plan.attributes["stars"].domain
    assert isinstance(rated, Ratings)
    assert isinstance(stars, SetSelection)
    assert planned(rated, stars) == pytest.approx(float(RatedShares.of(stars).variance(1 / 3, 1)))


def test_a_code_is_told_in_words(collected: Collected) -> None:
    level = collected.plan.levels["strict"].mechanisms
    said = {
        describe(collected.plan.attributes["stars"].domain, level["stars"], bytes([code]))
        for code in range(8)
    }
    assert {"00  says: food high", "01  says: food low", "06  says: 1 or fewer"} <= said
    assert describe(collected.plan.attributes["pets"].domain, level["pets"], b"\x03") == (
        "03  says: dog, yes"
    )
    codes = level["apps"].encode(level["apps"].randomize_many([[0, 1]], Coins()))
    assert " or " in describe(collected.plan.attributes["apps"].domain, level["apps"], codes)


def test_modules_of_both_languages_have_types_for_several_items(collected: Collected) -> None:
    frozen = surveys.resolve(surveys.from_toml(TOML, "test"))
    python = codegen.module(frozen)
    compile(python, "phones.py", "exec")
    assert "from collections.abc import Collection, Mapping" in python
    assert "apps: Collection[Apps] | None = None" in python
    assert "stars: Mapping[Stars, float] | None = None" in python
    typescript = codegen_typescript.module(frozen)
    assert "readonly apps?: readonly Apps[] | undefined" in typescript
    assert "readonly stars?: Readonly<Partial<Record<Stars, number>>> | undefined" in typescript


def test_a_demo_reads_cells_of_several_items() -> None:
    apps, stars = SetOf(("mail", "maps", "chess"), 2, True), Ratings(("food", "staff"), 1, 5, 2)
    assert sources._answer(apps, "mail; maps") == ["mail", "maps"]
    assert sources._answer(apps, "") == []
    assert sources._answer(stars, "food=4; staff=2.5") == {"food": 4.0, "staff": 2.5}
    with pytest.raises(ValueError, match="could not convert"):
        sources._answer(stars, "food")
    given = [["mail"], ["mail", "maps", "chess"], []]
    assert play._share_of_item(apps, given, "mail") == pytest.approx((1 + 2 / 3) / 3)


def test_questions_about_two_attributes_refuse_sets(collected: Collected) -> None:
    with pytest.raises(InvalidInput):
        collected.analyst.crosstab("phones", "apps", "sure").to_frame()
    with pytest.raises(InvalidInput, match="values and numbers"):
        collected.analyst.ols("phones", "apps ~ C(sure)").to_frame()


def test_a_forecast_says_which_rows_it_is_about(collected: Collected) -> None:
    said = asked(collected, "forecast", "stars", "--goal", 0.2)  # of rooms no mean is known
    assert "Every row whose error is known will have the wanted error" in said
    assert "Every row will have" in asked(collected, "forecast", "apps", "--goal", 0.2)
