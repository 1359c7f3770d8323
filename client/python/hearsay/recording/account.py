"""One person's privacy accounts: epsilon spent, and whether one more report fits; no database."""

import json
from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from math import ceil, inf
from typing import Any

from hearsay.choices import Caps, total
from hearsay.plans import period
from hearsay.plans.kinds import Categorical, Domain
from hearsay.plans.plan import Plan
from hearsay.recording.terms import Terms
from hearsay.trouble import Reason, Trouble
from ldp import Coins
from ldp.core.exact import float_above
from ldp.core.losses import bounded
from ldp.planning.composition import of_channels

_LAST = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()
"""The last second that a datetime can have."""

AHEAD = 24 * 3600.0
"""Seconds that a period may begin after, or have ended before, the server's time."""

_STRETCHES = 32
"""Answered time ranges that an account remembers. Beyond that the two earliest are merged, which
also closes the time between them."""


UPDATE = "update"
"""The question by whose name updates of a training are charged."""


@dataclass(frozen=True)
class SplitSpent:
    """What was spent on records that were split between two servers: the sums of their epsilons and
    of their deltas.

    Together the records are (`epsilon`, `delta`)-DP: of sums, against either server, if the other
    one is honest and enough devices are (docs/two-servers.md). Against both servers nothing holds.
    """

    epsilon: float
    delta: float


class Account:
    """One person's accounts, by survey, as the ledger stores them; the methods act on one survey.

    For each survey it holds:
    - the time of the first answer, and the latest period: when it was entered, the plan's
      revision, the drawn questions, the epsilon of each reported one, and the costs;
    - `panels`, where the survey has any: the person's panel, by how many there were to draw from;
    - `answered`, the time ranges of the answered periods;
    - `life`, how many times each epsilon was ever spent, by question;
    - `parts`, the attributes that each view asked, as a later revision may ask them in other views,
      which must not begin them anew; a question without an entry is the attribute of its name;
    - `calls`, the same, as if a memoised attribute needed one memo only, whatever the answers;
    - `fresh`, of `life` by epsilon, how many of the reports had which total variation; it is
      missing where an earlier version of the SDK wrote the account;
    - `split`, of `life` by epsilon, how many were records split between two servers at which delta.
    Life and calls differ only for memoised attributes: in life each new answer costs a memo and a
    repeated one nothing; in calls only the first report costs. Whether a report is dropped goes by
    `calls`, so it never depends on an answer: where only `life` is exhausted, a random value is
    reported.
    """

    def __init__(self, stored: str, survey: str) -> None:
        self._all: dict[str, dict[str, Any]] = json.loads(stored)
        self._mine = self._all.setdefault(
            survey, {"period": "", "answered": [], "spent": {}, "life": {}, "calls": {}}
        )
        self._left: Fraction | None = None

    def dump(self) -> str:
        """Return the person's accounts of all surveys as JSON, for the ledger."""
        return json.dumps(self._all)

    @property
    def life(self) -> Mapping[str, Mapping[str, int]]:
        """How many times each epsilon (in hex) was spent, by question of this survey."""
        life: Mapping[str, Mapping[str, int]] = self._mine["life"]
        return life

    @property
    def maps(self) -> Mapping[str, Sequence[str]]:
        """The maps that reports were made by so far, by attribute that has maps; "" is none."""
        return {name: list(dict(map(_map, used))) for name, used in self._maps.items()}

    def protected(self, attribute: str, domain: Domain) -> tuple[str, ...]:
        """Return the values that each map protected when reports were made by it; empty where none
        were made by maps.

        A later revision may have a map of the same name that lists other values.
        """
        listed = [sensitive for _, sensitive in map(_map, self._maps.get(attribute, ()))]
        if not listed or not isinstance(domain, Categorical):
            return ()
        return tuple(v for v in domain.values if all(each is None or v in each for each in listed))

    @property
    def _maps(self) -> Mapping[str, Sequence[Any]]:
        maps: Mapping[str, Sequence[Any]] = self._mine.get("maps", {})
        return maps

    def questions(self, attribute: str) -> tuple[str, ...]:
        """Return the questions that were ever reported and asked an attribute, by any revision."""
        reported = self._mine["calls"] | self._mine["life"]
        return tuple(name for name in reported if attribute in self.parts(name))

    def parts(self, question: str) -> Sequence[str]:
        """Return the attributes that a question asked, in any revision."""
        parts: Sequence[str] = self._mine.get("parts", {}).get(question, (question,))
        return parts

    @property
    def current(self) -> tuple[str, Sequence[str]]:
        """The latest period that was entered ("": none), and the questions reported in it."""
        return self._mine["period"], list(self._mine["spent"])

    def check(self, terms: Terms, now: datetime, server_time: float | None) -> tuple[str, bool]:
        """Return the name of the period at `now`, and whether an answer would enter it anew.

        Raises `Trouble` where it may not be answered: it was answered before, it begins more
        than a day after the server's time (Unix time; None: not known), or it is before one
        that was answered and the server does not confirm it.
        """
        mine, plan = self._mine, terms.plan
        label = period.label(plan.period, now)
        begin, end = _bounds(plan.period, label)
        if server_time is not None and plan.period and begin > server_time + AHEAD:
            raise Trouble(
                Reason.CLOCK,
                f"the clock shows {label}, more than a day after the server's time, "
                f"{datetime.fromtimestamp(server_time, UTC):%Y-%m-%d %H:%M}; if the clock is "
                "right, reach the server or call trust_clock()",
            )
        answered: list[list[float]] = mine["answered"]
        revision = plan.revision.hex()
        if mine["period"] == label and mine["revision"] == revision:
            return label, False
        if any(begin < until and start < end for start, until in answered):
            if mine["revision"] != revision:
                raise Trouble(
                    Reason.PLAN_CHANGED,
                    f"{label} was answered by revision {mine['revision'][:12]}: the new plan "
                    "counts from the next period on",
                )
            raise Trouble(Reason.CLOCK, f"the clock shows {label}, which was answered and left")
        if answered and begin < answered[-1][1]:
            confirmed = server_time is not None and end > server_time - AHEAD
            if not confirmed:
                raise Trouble(
                    Reason.CLOCK,
                    f"the clock shows {label}, and a later period was answered already; if the "
                    "clock is right, reach the server or call trust_clock()",
                )
        return label, True

    def enter(self, terms: Terms, now: datetime, server_time: float | None, coins: Coins) -> str:
        """Enter the period of `now`, drawing its attributes where it begins; return its name.

        The person's panel is drawn before, where the survey has panels and none was drawn yet.
        Raises `Trouble` as `check`, with nothing changed.
        """
        mine = self._mine
        label, begins = self.check(terms, now, server_time)
        self._keep_panel(terms.plan, coins)
        self._keep_parts(terms.plan)
        if begins:
            names = terms.plan.recorded
            mine |= {
                "period": label,
                "entered": now.timestamp(),
                "costs": {"life": [], "calls": []},
                "revision": terms.plan.revision.hex(),
                "drawn": [names[j] for j in terms.budget.draw(coins)],
                "spent": {},
            }
            mine.setdefault("since", now.timestamp())
            _add(mine["answered"], list(_bounds(terms.plan.period, label)))
        else:
            # Where these terms drew the attributes, their sum is within their record's epsilon.
            # Otherwise other terms drew them, or reported some already.
            spent = sum(map(_epsilon, mine["spent"].values()), Fraction(0))
            self._left = Fraction(terms.record_epsilon) - spent
        return label

    def panel_of(self, plan: Plan) -> int:
        """Return the panel, from 1 on, that a report by a plan is sent with; 0 where the plan has
        none, or none was drawn yet."""
        return int(self._mine.get("panels", {}).get(str(plan.panels), 0))

    def _keep_panel(self, plan: Plan, coins: Coins) -> None:
        """Draw the person's panel once for each number of panels that a plan of the survey has.

        An app that goes back to an earlier number goes back to the panel of then.
        """
        if plan.panels and not self.panel_of(plan):
            drawn = 1 + coins.below(plan.panels)
            self._mine.setdefault("panels", {})[str(plan.panels)] = drawn

    def _keep_parts(self, plan: Plan) -> None:
        """Keep which attributes each view asks.

        A name may be a view's in one revision and an attribute's in another: what was spent by that
        name then counts for all of them.
        """
        kept = self._mine.setdefault("parts", {})
        if not (kept or plan.views or plan.two_servers):
            return  # every question is the attribute of its name
        for name in plan.recorded:
            asked = plan.parts(name)
            if name in kept or asked != (name,):
                before = kept.get(name, [name] if name in self._mine["calls"] else [])
                kept[name] = list(dict.fromkeys([*before, *asked]))

    def is_drawn(self, name: str) -> bool:
        """Tell whether the record of this period reports a question."""
        return name in self._mine["drawn"]

    def may_report(self, terms: Terms, name: str, epsilon: float, caps: Sequence[Caps]) -> bool:
        """Tell whether a question may still be reported in this period: once, and while the sums
        of the period are within the record's epsilon and, on each attribute, within its caps."""
        if name in self._mine["spent"]:
            return False
        if self._left is None:
            return True  # the terms, which were checked, bound what one record spends
        return epsilon <= self._left and all(
            self._spent_now(terms, part) + Fraction(epsilon) <= Fraction(cap)
            for part in terms.plan.parts(name)
            if (cap := terms.cap_of(part, caps)) < inf
        )

    def _spent_now(self, terms: Terms, attribute: str) -> Fraction:
        """Return the sum of what this period spent on an attribute, in all questions about it."""
        spent = self._mine["spent"]
        asked = [name for name in terms.containing[attribute] if name in spent]
        return sum((_epsilon(spent[name]) for name in asked), Fraction(0))

    def calls_cost(self, terms: Terms, name: str) -> float:
        """Return the epsilon charged to `calls` for a report; of memos only the first costs."""
        return 0.0 if name in terms.memoizers and name in self._mine["calls"] else terms.cost(name)

    def allows(self, kind: str, terms: Terms, name: str, cost: float, caps: Sequence[Caps]) -> bool:
        """Tell whether the caps for life allow a question to cost more, by "life" or by "calls"."""
        return not cost or all(
            self._allows(kind, terms, name, Fraction(cost), each) for each in caps
        )

    def _allows(self, kind: str, terms: Terms, name: str, cost: Fraction, caps: Caps) -> bool:
        if caps.life is not None:
            ever = sum((total(mine[kind]) for mine in self._all.values()), Fraction(0))
            if ever + cost > Fraction(caps.life):
                return False
            if caps.until is not None:
                now = sum(map(_epsilon, self._mine["costs"][kind]), Fraction(0))
                if ever - now > Fraction(caps.life) * self._share(caps, self._mine["entered"]):
                    return False
        return all(
            self._spent(kind, part) + cost <= Fraction(caps.attribute_life[part])
            for part in terms.plan.parts(name)
            if part in caps.attribute_life
        )

    def _spent(self, kind: str, attribute: str) -> Fraction:
        """Return the sum of what was ever spent on an attribute of this survey."""
        spent = self._mine[kind]
        return total({name: spent[name] for name in self.questions(attribute) if name in spent})

    def resumes(self, terms: Terms, caps: Sequence[Caps], now: datetime) -> datetime | None:
        """Return the earliest time (UTC) to enter a period whose answers the pace of the caps for
        life allows.

        None where the pace allows answers now, and where waiting cannot help: a cap for life is
        used up, or the survey has one period only.
        """
        ever = sum((total(mine["calls"]) for mine in self._all.values()), Fraction(0))
        cost = min((self.calls_cost(terms, name) for name in terms.answered), default=0.0)
        lives = [Fraction(each.life) for each in caps if each.life is not None]
        if not (ever and cost and terms.plan.period) or any(
            ever + Fraction(cost) > x for x in lives
        ):
            return None
        label = period.label(terms.plan.period, now)
        at, before = now.timestamp(), ever
        moments = [at]
        if self._mine["period"] == label:
            at, moments = self._mine["entered"], [_bounds(terms.plan.period, label)[1]]
            before -= sum(map(_epsilon, self._mine["costs"]["calls"]), Fraction(0))
        blocked = False
        for each in caps:
            if each.life is not None and each.until is not None:
                blocked |= before > Fraction(each.life) * self._share(each, at)
                first, end = self._pace(each)
                moments.append(ceil(first + ever / Fraction(each.life) * Fraction(end - first)))
        return datetime.fromtimestamp(min(max(moments), _LAST), UTC) if blocked else None

    def _share(self, caps: Caps, at: float) -> Fraction:
        """Return the share of a pace's time that has passed at `at`, in Unix time."""
        first, end = self._pace(caps)
        if end <= first:
            return Fraction(1)
        return min(Fraction(1), Fraction(at - first) / Fraction(end - first))

    def _pace(self, caps: Caps) -> tuple[float, float]:
        """Return the Unix times at which a pace begins (the person's first answer) and ends."""
        first = min(mine["since"] for mine in self._all.values() if "since" in mine)
        return first, caps.ends.timestamp()

    def report(
        self,
        name: str,
        epsilon: float,
        *,
        calls: float,
        life: float,
        variation: float | None,
        chosen: tuple[str, Sequence[str]] | None = None,
        delta: float | None = None,
    ) -> None:
        """Note a report of `epsilon` in this period, and charge its costs to `calls` and `life`.

        `variation` is the total variation of a fresh report, None where it only adds up. `chosen`
        is the map that it was made by and the map's values, "" for none; None where there are no
        maps. `delta` is that of a record that is split between two servers, None of other reports.
        """
        self._mine["spent"][name] = epsilon.hex()
        if self._left is not None:
            self._left -= Fraction(epsilon)
        for kind, cost in (("calls", calls), ("life", life)):
            if cost:
                times = self._mine[kind].setdefault(name, {})
                times[cost.hex()] = times.get(cost.hex(), 0) + 1
                self._mine["costs"][kind].append(cost.hex())
        if chosen is not None:
            used = self._mine.setdefault("maps", {}).setdefault(name, [])
            name_of_map, sensitive = chosen
            entry = [name_of_map, list(sensitive) if name_of_map else None]
            if entry not in used:
                used.append(entry)
        if life and variation is not None:
            fresh = self._mine.setdefault("fresh", {}).setdefault(name, {})
            times = fresh.setdefault(life.hex(), {})
            times[variation.hex()] = times.get(variation.hex(), 0) + 1
        if life and delta is not None:
            of_sums = self._mine.setdefault("split", {}).setdefault(name, {})
            times = of_sums.setdefault(life.hex(), {})
            times[delta.hex()] = times.get(delta.hex(), 0) + 1

    def composed(self, names: Collection[str] | None = None) -> float:
        """Return an epsilon at which all that was spent is (epsilon, `DELTA`)-LDP, rounded up,
        without the records that were split between two servers, which `split` tells.

        Of the questions `names` of this survey; None stands for all questions of all surveys.
        Fresh reports compose by their epsilon and total variation
        (`ldp.planning.composition.of_channels`). What is not known to be fresh adds up: memos,
        reports under a policy that protects one way only, and reports that an earlier version of
        the SDK made.
        """
        lives = [self._mine] if names is not None else list(self._all.values())
        fresh: Counter[tuple[str, str]] = Counter()
        added = Fraction(0)
        for mine in lives:
            for name, spent in mine["life"].items():
                if names is not None and name not in names:
                    continue
                known, of_sums = (mine.get(kind, {}).get(name, {}) for kind in ("fresh", "split"))
                for epsilon, times in spent.items():
                    variations = known.get(epsilon, {})
                    fresh.update({(epsilon, of): n for of, n in variations.items()})
                    others = sum(variations.values()) + sum(of_sums.get(epsilon, {}).values())
                    added += _epsilon(epsilon) * (times - others)
        return float_above(added + Fraction(_composed(frozenset(fresh.items()))))

    def split(self, names: Collection[str] | None = None) -> SplitSpent:
        """Return what records that were split between two servers spent, rounded up: of the
        questions `names` of this survey; None stands for all questions of all surveys."""
        epsilon, delta = self._split(names)
        return SplitSpent(float_above(epsilon), float_above(min(delta, Fraction(1))))

    def _split(self, names: Collection[str] | None) -> tuple[Fraction, Fraction]:
        lives = [self._mine] if names is not None else list(self._all.values())
        each = [
            (_epsilon(epsilon), _epsilon(delta), times)
            for mine in lives
            for name, spent in mine.get("split", {}).items()
            if names is None or name in names
            for epsilon, by_delta in spent.items()
            for delta, times in by_delta.items()
        ]
        return (
            sum((epsilon * times for epsilon, _, times in each), Fraction(0)),
            sum((delta * times for _, delta, times in each), Fraction(0)),
        )

    @property
    def added(self) -> Fraction:
        """The sum of all epsilons that were ever spent, on all surveys and trainings."""
        return sum((total(mine["life"]) for mine in self._all.values()), Fraction(0))

    @property
    def added_without_split(self) -> Fraction:
        """The same sum, without records that were split between two servers."""
        return self.added - self._split(None)[0]

    def two_sided(self, is_training: Callable[[str], bool]) -> tuple[Fraction, Fraction]:
        """Return the sum of the epsilons that are known to bound the loss in both directions, and
        the sum of their squares: those of updates of trainings and of fresh reports.

        The others are of memos, of reports under a policy that protects one way only, of reports
        that an earlier version of the SDK made, and of records that were split (`split`).
        """
        known: Counter[str] = Counter()
        for survey, mine in self._all.items():
            if is_training(survey):
                known.update(mine["life"].get(UPDATE, {}))
            for spent in mine.get("fresh", {}).values():
                known.update({epsilon: sum(times.values()) for epsilon, times in spent.items()})
        each = [(_epsilon(epsilon), times) for epsilon, times in known.items()]
        return (
            sum((epsilon * times for epsilon, times in each), Fraction(0)),
            sum((epsilon**2 * times for epsilon, times in each), Fraction(0)),
        )

    def allows_update(self, kind: str, epsilon: float, caps: Sequence[Caps], at: float) -> bool:
        """Tell whether the caps for life allow an update of a training to cost `epsilon` at `at`
        (Unix time), by "life" or by "calls"."""
        ever = sum((total(mine[kind]) for mine in self._all.values()), Fraction(0))
        known = any("since" in mine for mine in self._all.values())  # the first one is not paced
        return all(
            each.life is None
            or (
                ever + Fraction(epsilon) <= Fraction(each.life)
                and (
                    each.until is None
                    or not known
                    or ever <= Fraction(each.life) * self._share(each, at)
                )
            )
            for each in caps
        )

    def charge_update(self, kind: str, epsilon: float, at: float) -> None:
        """Charge an update of a training, sealed at `at`, to "life" or to "calls"."""
        self._mine.setdefault("since", at)
        times = self._mine[kind].setdefault(UPDATE, {})
        times[epsilon.hex()] = times.get(epsilon.hex(), 0) + 1

    def left(self, attribute: str, caps: Sequence[Caps]) -> float | None:
        """Return the epsilon that the caps for life leave an attribute; None without such caps."""
        limits = []
        for each in caps:
            if each.life is not None:
                limits.append(Fraction(each.life) - self.added)
            if attribute in each.attribute_life:
                spent = self._spent("life", attribute)
                limits.append(Fraction(each.attribute_life[attribute]) - spent)
        return max(0.0, float(min(limits))) if limits else None


@lru_cache(maxsize=64)
def _bounds(unit: str, label: str) -> tuple[float, float]:
    """Return when a period begins and ends, in Unix time."""
    return period.start(unit, label).timestamp(), period.end(unit, label).timestamp()


@lru_cache(maxsize=64)
def _composed(fresh: frozenset[tuple[tuple[str, str], int]]) -> float:
    """Return the composition of fresh reports, by epsilon and total variation (in hex)."""
    return of_channels(
        [
            (bounded(float.fromhex(epsilon), float.fromhex(variation)), times)
            for (epsilon, variation), times in sorted(fresh)
        ]
    )


def _map(stored: str | tuple[str, Sequence[str] | None]) -> tuple[str, Sequence[str] | None]:
    """Return a map's name and the values that it protects: None stands for all.

    Earlier versions kept the name only, of which it is not known what it protected.
    """
    if isinstance(stored, str):
        return stored, () if stored else None
    name, sensitive = stored
    return name, sensitive


def _epsilon(text: str) -> Fraction:
    return Fraction(float.fromhex(text))


def _add(answered: list[list[float]], stretch: list[float]) -> None:
    """Add a time range that overlaps no other, and join it with adjacent ones."""
    insort(answered, stretch)
    at = answered.index(stretch)
    if at + 1 < len(answered) and answered[at + 1][0] == stretch[1]:
        stretch[1] = answered.pop(at + 1)[1]
    if at and answered[at - 1][1] == stretch[0]:
        answered[at - 1][1] = answered.pop(at)[1]
    while len(answered) > _STRETCHES:
        answered[0][1] = answered.pop(1)[1]
