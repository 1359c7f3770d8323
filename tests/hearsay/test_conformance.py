"""The SDK computes what protos/conformance says, as does the text of docs/wire-mechanisms.md."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import generate
import pytest
import wire_reference as reference
from vectors.mechanisms import _picked, _point, taken
from vectors.notation import Script, written

from hearsay import InvalidInput
from hearsay.plans import kinds as domains
from hearsay.plans import period
from hearsay.plans.kinds import Binned, Numeric, Ratings, SetOf, Strings
from hearsay.plans.memo import Memoizer
from hearsay.plans.plan import parse
from hearsay.plans.texts import check_text
from hearsay.plans.views import View
from hearsay.recording.batches import only, together
from hearsay.v1 import collector_pb2
from ldp import RAPPOR, Mechanism, build
from ldp.core.exact import ONE, exp_bounds, log_upper
from ldp.core.mechanism import Categorical
from ldp.mechanisms import IN_PLANS
from ldp.mechanisms.numbers.mean_table import place_on
from ldp.planning.budget import Budget

HERE = Path(__file__).resolve().parent.parent.parent / "protos" / "conformance"

Case = Mapping[str, Any]


@cache
def vectors(file: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((HERE / file).read_text(encoding="utf-8"))
    return found


def cases(file: str, key: str) -> Sequence[Any]:
    found: Sequence[Any] = vectors(file)[key]
    return found


def double(text: str) -> float:
    (number,) = struct.unpack(">d", bytes.fromhex(text))
    return float(number)


def bits(number: float) -> str:
    return struct.pack(">d", number).hex()


def ratio(pair: Sequence[str]) -> Fraction:
    return Fraction(int(pair[0]), int(pair[1]))


def integers(case: Case) -> dict[str, tuple[int, ...]]:
    return {name: tuple(map(int, row)) for name, row in case["integers"].items()}


def built(case: Case) -> Mechanism:
    return build(case["name"], double(case["epsilon"]), integers(case))


def value_of(shown: Any) -> Any:
    return double(shown) if isinstance(shown, str) else shown


def named(case: Case) -> str:
    return f"{case['name']}-{case['width']}"


# --- the files themselves -----------------------------------------------------------------------


@pytest.mark.parametrize("file", generate.FILES)
def test_the_files_are_what_the_script_writes(file: str) -> None:
    made = written(generate.FILES[file]())
    assert made == (HERE / file).read_text(encoding="utf-8"), "run protos/conformance/generate.py"


def test_no_other_file_is_there_and_all_are_small() -> None:
    there = {path.name for path in HERE.glob("*.json")}
    assert there == set(generate.FILES)
    assert sum((HERE / name).stat().st_size for name in there) < 1 << 21


def test_every_mechanism_of_a_survey_has_codes_and_checks() -> None:
    wanted = set(IN_PLANS)
    assert {case["name"] for case in cases("codes.json", "mechanisms")} == wanted
    for answer in (True, False):
        decided = {c["name"] for c in cases("checks.json", "checks") if c["accepted"] is answer}
        assert decided >= wanted
    refused = {c["name"] for c in cases("checks.json", "checks") if c.get("reason") == "epsilon"}
    assert refused == wanted


def test_every_value_of_a_small_domain_has_codes() -> None:
    for case in cases("codes.json", "mechanisms"):
        if case["input"] != "category":
            continue
        k = math.prod(map(int, case["integers"].get("k") or case["integers"]["sides"]))
        if k <= 16:
            assert {value for value, *_ in case["codes"]} == set(range(k))


# --- draws and codes ----------------------------------------------------------------------------


def drawn_by_us(case: Case, coins: Script) -> object:
    match case["draw"]:
        case "coin":
            return coins.bernoulli(int(case["threshold"]))
        case "uniform":
            return str(coins.below(int(case["bound"])))
        case "pick":
            return _picked(list(map(int, case["weights"])), coins)
        case "toss":
            return coins.toss(int(case["threshold"]), case["count"]).tobytes().hex()
        case "distinct":
            return coins.distinct(case["count"], case["size"]).tolist()
        case "point":
            return _point(double(case["x"]), case["grid"], coins)
        case "place":
            point, rest = place_on(case["grid"], double(case["x"]))
            return point + coins.bernoulli(rest << 32)
    raise AssertionError(case["draw"])


def drawn_by_the_text(case: Case, stream: reference.Stream) -> object:
    match case["draw"]:
        case "coin":
            return stream.coin(int(case["threshold"]))
        case "uniform":
            return str(stream.uniform(int(case["bound"])))
        case "pick":
            return stream.pick(list(map(int, case["weights"])))
        case "toss":
            return stream.toss(int(case["threshold"]), case["count"]).hex()
        case "distinct":
            return stream.distinct(case["count"], case["size"])
        case "point":
            return stream.point(double(case["x"]), case["grid"])
        case "place":
            return stream.place(double(case["x"]), case["grid"])
    raise AssertionError(case["draw"])


def test_each_draw_takes_these_bytes_of_its_stream() -> None:
    for case in cases("draws.json", "draws"):
        stream = bytes.fromhex(case["stream"])
        coins = Script(stream=stream)
        assert drawn_by_us(case, coins) == case["result"], case
        text = reference.Stream(stream, literal=True)
        assert drawn_by_the_text(case, text) == case["result"], case
        assert coins.used == text.used == len(stream), case


@pytest.mark.parametrize("case", cases("codes.json", "mechanisms"), ids=named)
def test_codes_are_drawn_as_the_vectors_say(case: Case) -> None:
    mechanism = built(case)
    assert mechanism.code_bytes == case["width"]
    for shown, seed, code, used in case["codes"]:
        coins = Script(bytes.fromhex(seed))
        drawn = mechanism.randomize(taken(mechanism, value_of(shown)), coins)
        assert mechanism.encode_one(drawn).hex() == code
        assert coins.used == used
        mechanism.decode(bytes.fromhex(code), 1)


@pytest.mark.parametrize("case", cases("codes.json", "mechanisms"), ids=named)
def test_codes_are_drawn_as_the_text_says(case: Case) -> None:
    for shown, seed, code, used in case["codes"]:
        stream = reference.Stream(bytes.fromhex(seed))
        drawn = reference.code(case["name"], integers(case), value_of(shown), stream)
        assert (drawn.hex(), stream.used) == (code, used)


@pytest.mark.parametrize("case", cases("lives.json", "mechanisms"), ids=named)
def test_memos_are_drawn_as_the_vectors_say(case: Case) -> None:
    mechanism = built(case)
    assert isinstance(mechanism, Categorical | RAPPOR)
    memoizer = Memoizer(mechanism)
    assert bits(memoizer.epsilon) == case["memo_epsilon"]
    for life in case["lives"]:
        coins = Script(bytes.fromhex(life["seed"]))
        device = memoizer.enroll(coins)
        assert device.hex() == life["device"]
        assert len(device) == case["device"]
        for each in life["memos"]:
            value = taken(mechanism, each["value"])
            assert str(memoizer.key(device, value)) == str(each["key"])
            memo = memoizer.memoize(device, value, coins)
            assert memo.hex() == each["memo"]
            assert [memoizer.report(memo, coins).hex() for _ in range(2)] == each["reports"]
        assert coins.used == life["used"]


@pytest.mark.parametrize("case", cases("lives.json", "mechanisms"), ids=named)
def test_memos_are_drawn_as_the_text_says(case: Case) -> None:
    name, given = case["name"], integers(case)
    for life in case["lives"]:
        stream = reference.Stream(bytes.fromhex(life["seed"]))
        device = reference.enroll(name, given, stream)
        assert device.hex() == life["device"]
        for each in life["memos"]:
            found = reference.key(name, given, device, each["value"])
            assert str(found) == str(each["key"])
            memo = reference.memoize(name, given, device, each["value"], stream)
            assert memo.hex() == each["memo"]
            reports = [reference.report(name, given, memo, stream).hex() for _ in range(2)]
            assert reports == each["reports"]
        assert stream.used == life["used"]


# --- exact checks -------------------------------------------------------------------------------


def test_bounds_of_the_exponential_are_those_of_the_vectors() -> None:
    for case in cases("bounds.json", "exponentials"):
        digits, exponent = map(int, case["bound"])
        assert 10**59 <= digits < 10**60
        bound = digits * Fraction(10) ** exponent
        assert exp_bounds(ratio(case["x"]))[0] == bound
        assert reference.exponential_bound(ratio(case["x"])) == bound


def test_epsilons_of_ratios_are_those_of_the_vectors() -> None:
    for case in cases("bounds.json", "logarithms"):
        assert bits(log_upper(ratio(case["ratio"]))) == case["epsilon"]
        assert bits(reference.logarithm(ratio(case["ratio"]))) == case["epsilon"]


def test_mechanisms_are_accepted_and_refused_as_the_vectors_say() -> None:
    for case in cases("checks.json", "checks"):
        try:
            built(case)
        except InvalidInput as error:
            assert not case["accepted"], f"{case['name']}, {case['note']}: {error}"
            exceeds = "the integers give epsilon" in str(error) or "told apart" in str(error)
            assert (case["reason"] == "epsilon") == exceeds
        else:
            assert case["accepted"], f"{case['name']}, {case['note']}"


MESSAGES = {
    "bytes": "are no plan",
    "unknown": "fields that this version of hearsay does not know",
    "canonical": "not the canonical serialisation",
    "text": r"U\+|single spaces|normal form",
    "work": "at most 64 levels|at most 268435456 in sum",
    "period": "period must be empty or one of",
    "attributes": "needs attributes, each with a name",
    "domain": "bins|edges|values|keys|at_most|class|map|whole steps|step must|points|low and high"
    "|needs a domain|twice|sensitive|resolution|within|cap must|ratings|alphabet|longest"
    "|candidates",
    "memo": "memo",
    "views": "^views",
    "panels": "^panels",
    "properties": "propert",
    "levels": "needs levels, each|^levels: |mechanisms for",
    "chances": "budget has one epsilon|chances must sum",
    "epsilon": "promises epsilon",
    "mechanism": "^level '.*', '.*': (?!.*(does not fit|another policy|cap of|a memo))",
    "fit": "does not fit|: rappor (tells|may|of)",
    "policy": "keeps another policy",
    "cap": "attribute's cap|more than its cap",
    "default_level": "^default_level",
    "levels_differ": "^levels_differ_at_most",
}


@pytest.mark.parametrize("case", cases("plans.json", "plans"), ids=lambda case: str(case["note"]))
def test_plans_are_accepted_and_refused_as_the_vectors_say(case: Case) -> None:
    data = bytes.fromhex(case["plan"])
    if not case["accepted"]:
        with pytest.raises(InvalidInput, match=MESSAGES[case["reason"]]):
            parse(data)
        return
    plan = parse(data)
    assert plan.revision.hex() == case["revision"]
    epsilons = {name: bits(level.budget.record_epsilon) for name, level in plan.levels.items()}
    assert epsilons == case["record_epsilon"]


def test_every_reason_to_refuse_a_plan_has_vectors() -> None:
    assert {case.get("reason") for case in cases("plans.json", "plans")} == {None, *MESSAGES}


# --- answers ------------------------------------------------------------------------------------


def test_combinations_have_the_category_that_the_vectors_say() -> None:
    for case in cases("views.json", "views"):
        sizes = case["sizes"]
        names = [f"a{place}" for place in range(len(sizes))]
        view = View(tuple(names), tuple(sizes))
        parts = [domains.Categorical(tuple(map(str, range(size)))) for size in sizes]
        for given, seed, category, used in case["answers"]:
            coins = Script(bytes.fromhex(seed))
            drawn = [
                domain.anything(coins) if value is None else value
                for domain, value in zip(parts, given, strict=True)
            ]
            assert (view.category(drawn), coins.used) == (category, used)
            stream = reference.Stream(bytes.fromhex(seed))
            assert reference.combination(sizes, given, stream) == category


def test_sets_become_items_as_the_vectors_say() -> None:
    for case in cases("sets.json", "sets"):
        count, most, clamp = case["values"], case["at_most"], case["clamp"]
        names = tuple(f"v{place}" for place in range(count))
        domain = SetOf(names, most, clamp)
        for places, items, seed, used in case["answers"]:
            text = reference.Stream(bytes.fromhex(seed))
            assert reference.set_answer(most, clamp, places, text) == items
            assert text.used == used
            if items is None:
                with pytest.raises(InvalidInput):
                    domain.encode([names[place] for place in places])
                continue
            coins = Script(bytes.fromhex(seed))
            value = domain.encode([names[place] for place in places])
            assert list(domain.settled(value, coins)) == items
            assert coins.used == used
        for seed, items, used in case["anything"]:
            text, coins = reference.Stream(bytes.fromhex(seed)), Script(bytes.fromhex(seed))
            assert reference.any_set(count, most, text) == items
            assert list(domain.settled(domain.anything(coins), coins)) == items
            assert coins.used == text.used == used


def test_words_are_read_as_the_vectors_say() -> None:
    for case in cases("words.json", "words"):
        domain = Strings(case["alphabet"], case["longest"])
        for points, word, places in case["answers"]:
            answer = "".join(map(chr, points))
            assert reference.word(case["alphabet"], case["longest"], answer) == word
            if word is None:
                with pytest.raises(InvalidInput):
                    domain.encode(answer)
                continue
            assert domain.encode(answer) == word
            number = sum(place << 5 * i for i, place in enumerate(places))
            assert domain.settled(word, Script(b"")) == number
        for seed, word, used in case["anything"]:
            text, coins = reference.Stream(bytes.fromhex(seed)), Script(bytes.fromhex(seed))
            assert reference.any_word(case["alphabet"], case["longest"], text) == word
            assert domain.anything(coins) == word
            assert coins.used == text.used == used
    for case in cases("words.json", "refused"):
        with pytest.raises(InvalidInput):
            Strings(case["alphabet"], case["longest"], tuple(case["candidates"]))


def test_texts_are_taken_and_answers_found_as_the_vectors_say() -> None:
    def text(points: Sequence[int]) -> str:
        return "".join(map(chr, points))

    for points, accepted in cases("texts.json", "texts"):
        with nullcontext() if accepted else pytest.raises(InvalidInput):
            check_text("title", text(points))
    for case in cases("texts.json", "answers"):
        values = tuple(map(text, case["values"]))
        domain = domains.Categorical(values)
        for shown, place in case["answers"]:
            answer = double(shown) if isinstance(shown, str) else text(shown)
            assert reference.value(values, answer) == place
            with nullcontext() if place is not None else pytest.raises(InvalidInput):
                assert domain.encode(answer) == place
    for values in cases("texts.json", "alike"):
        with pytest.raises(InvalidInput):
            domains.Categorical(tuple(map(text, values)))


def test_ratings_become_items_as_the_vectors_say() -> None:
    for case in cases("sets.json", "ratings"):
        count, most, clamp = case["keys"], case["at_most"], case["clamp"]
        low, high = double(case["low"]), double(case["high"])
        names = tuple(f"v{place}" for place in range(count))
        domain = Ratings(names, low, high, most, clamp)
        for shown, places, items, seed, used in case["answers"]:
            rated = [(key, double(rating)) for key, rating in shown]
            text = reference.Stream(bytes.fromhex(seed))
            kept = reference.shares(low, high, most, clamp, rated)
            if places is None:
                assert kept is None
                with pytest.raises(InvalidInput):
                    domain.encode({names[key]: rating for key, rating in rated})
                continue
            assert kept is not None
            assert [[key, str(share)] for key, share in kept] == places
            assert reference.signs(reference.some(kept, most, text), text) == items
            coins = Script(bytes.fromhex(seed))
            value = domain.encode({names[key]: rating for key, rating in rated})
            assert [[key, str(share)] for key, share in value] == places
            assert list(domain.settled(value, coins)) == items
            assert coins.used == text.used == used
        for seed, items, used in case["anything"]:
            text, coins = reference.Stream(bytes.fromhex(seed)), Script(bytes.fromhex(seed))
            assert reference.any_ratings(count, most, text) == items
            assert list(domain.settled(domain.anything(coins), coins)) == items
            assert coins.used == text.used == used


def test_numbers_find_their_place_as_the_vectors_say() -> None:
    for case in cases("numbers.json", "domains"):
        low, high, step = (double(case[name]) for name in ("low", "high", "step"))
        domain = Numeric(low, high, case["clamp"], step)
        for answer, place, seed, point in case["answers"]:
            text = reference.place(low, high, step, case["clamp"], double(answer))
            assert (None if text is None else bits(text)) == place
            if place is None:
                with pytest.raises(InvalidInput):
                    domain.encode(double(answer))
                continue
            assert bits(domain.encode(double(answer))) == place
            assert _point(double(place), case["grid"], Script(bytes.fromhex(seed))) == point
            stream = reference.Stream(bytes.fromhex(seed))
            assert stream.point(double(place), case["grid"]) == point
        for seed, place, used in case["anything"]:
            coins = Script(bytes.fromhex(seed))
            assert bits(float(domain.anything(coins))) == place
            assert coins.used == used
    for case in cases("numbers.json", "binned"):
        low, high = double(case["low"]), double(case["high"])
        edges = tuple(map(double, case["edges"]))
        binned = Binned(low, high, case["clamp"], case["bins"], edges)
        for answer, place in case["answers"]:
            number = double(answer)
            bins = edges or case["bins"]
            assert reference.bin_of(low, high, bins, case["clamp"], number) == place
            if place is None:
                with pytest.raises(InvalidInput):
                    binned.encode(number)
            else:
                assert binned.encode(number) == place
        for seed, place, used in case["anything"]:
            coins = Script(bytes.fromhex(seed))
            assert (binned.anything(coins), coins.used) == (place, used)
    for case in cases("numbers.json", "refused_bins"):
        low, high = double(case["low"]), double(case["high"])
        with pytest.raises(InvalidInput):
            edges = tuple(map(double, case["edges"]))
            Binned(low, high, case["clamp"], case["bins"], edges)
    for case in cases("numbers.json", "refused"):
        low, high, step = (double(case[name]) for name in ("low", "high", "step"))
        with pytest.raises(InvalidInput):
            Numeric(low, high, case["clamp"], step)


def test_graded_numbers_declare_the_policies_of_the_vectors() -> None:
    def pairs(case: Case, name: str) -> tuple[tuple[float, float], ...]:
        return tuple((double(a), double(b)) for a, b in case[name])

    for case in cases("numbers.json", "graded"):
        low, high, step, cap = (double(case[name]) for name in ("low", "high", "step", "cap"))
        sensitive, resolution = pairs(case, "sensitive"), pairs(case, "resolution")
        domain = Numeric(low, high, case["clamp"], step, sensitive, resolution, cap)
        assert domain.ordinary_ranges == pairs(case, "ordinary")
        grid, epsilon = case["grid"], double(case["epsilon"])
        policy = domain.policy(epsilon, grid)
        assert policy is not None
        assert [str(each) for each in policy.integers] == case["policy"]
        # The text: distances of points, in units; None where nothing is promised.
        units = Fraction(epsilon) * 2**58 // 1
        if sensitive:
            found = reference.protected(low, high, step, grid, sensitive)
            text = [
                [units if a in found else None for _ in range(grid + 1)] for a in range(grid + 1)
            ]
        else:
            lengths = reference.lengths(low, high, step, grid, resolution, cap, epsilon)
            text = [
                [min(units, sum(lengths[min(a, b) : max(a, b)])) for b in range(grid + 1)]
                for a in range(grid + 1)
            ]
        for a, row in enumerate(text):
            for b, distance in enumerate(row):
                if a != b:
                    kept = policy.distances[policy.classes[a]][policy.classes[b]]
                    assert kept == (2**64 - 1 if distance is None else distance)


def test_a_word_draws_the_attributes_that_the_vectors_say() -> None:
    for case in cases("arcs.json", "levels"):
        chances = tuple(int(chance) or ONE for chance in case["chances"])
        budget = Budget((1.0,) * len(chances), chances)
        for word, drawn in case["draws"]:
            stream = int(word).to_bytes(8, "little")
            assert list(budget.draw(Script(stream=stream))) == drawn
            # The text: attribute j's arc starts at the sum of the chances before it.
            starts = [sum(chances[:j]) for j in range(len(chances))]
            inside = [j for j, start in enumerate(starts) if (int(word) - start) % ONE < chances[j]]
            assert inside == drawn


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def test_periods_have_the_names_and_ends_of_the_vectors() -> None:
    for unit, instant, name in cases("periods.json", "instants"):
        assert period.label(unit, at(instant)) == name
    for unit, name, start, end in cases("periods.json", "periods"):
        if unit:
            assert (period.start(unit, name), period.end(unit, name)) == (at(start), at(end))
    for unit, name in cases("periods.json", "refused"):
        with pytest.raises(InvalidInput):
            period.start(unit, name)


def test_reports_make_the_bytes_of_a_batch_and_come_out_of_them() -> None:
    for case in cases("batches.json", "batches"):
        reports = []
        for row in case["rows"]:
            report = collector_pb2.Batch(
                survey=case["survey"],
                revision=bytes.fromhex(case["revision"]),
                period=case["period"],
                rows=1,
                panel=case.get("panel", 0),
                properties=case.get("properties", ()),
            )
            for cell in row:
                code = bytes.fromhex(cell["code"])
                by_map = cell.get("map", "")
                report.columns.add(
                    attribute=cell["attribute"], level=cell["level"], codes=code, map=by_map
                )
            reports.append(report)
        batch = together(reports)
        batch.id = bytes.fromhex(case["id"])
        data = bytes.fromhex(case["bytes"])
        assert batch.SerializeToString(deterministic=True) == data
        parsed = collector_pb2.Batch.FromString(data)
        for row in (0, len(reports) - 1):
            alone = only(parsed, [row])
            assert (alone.panel, list(alone.properties)) == (parsed.panel, list(parsed.properties))
            shown = {
                (c["attribute"], c["level"], c["code"], c.get("map", "")) for c in case["rows"][row]
            }
            assert {(c.attribute, c.level, c.codes.hex(), c.map) for c in alone.columns} == shown
