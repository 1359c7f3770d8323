"""What `hearsay survey explain` prints."""

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from hearsay.plans.kinds import Numeric
from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import LEAST
from hearsay_server import tabular
from hearsay_server.printing import Console, headed
from hearsay_server.surveys import (
    explain_protections,
    explain_sets,
    explain_words,
    graded,
    two_servers,
    worth,
)
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain import Explanation
from hearsay_server.surveys.explain_changes import PANELS
from hearsay_server.surveys.weights import Weights
from hearsay_server.surveys.worth import Worth
from hearsay_server.wrapping import print_wrapped
from ldp.planning.composition import DELTA
from ldp.two_servers import account

_OVER_TIME_BY_MAP = (
    "This is for those who chose no map. Ledgers take the sum for those who chose one, and it is "
    "about the values that all of a person's maps protect."
)
_OVER_TIME = (
    "The sum is what ledgers and caps count. The other epsilon bounds what all reports tell but "
    "for a probability of delta, where nobody's times and levels depend on codes sent before. Of "
    "values under a policy both hold for those that it protects, and a memoised attribute counts "
    "once, as for a value that stays."
)


_WHOLE = headed("whole record")
_ERRORS = (
    "Errors are standard errors: of a frequency on average, if all values are equally frequent; of "
    "a mean, if numbers are spread evenly and noise is at its worst (on average where numbers are "
    "protected by their value)."
)
_TOGETHER = (
    "What is asked together can be estimated together. Apart, a combination is estimated from "
    "records that report each attribute by itself, with its part of epsilon, and an attribute as "
    "the budget says."
)
_CHANGES = (
    "A change between two periods is found with probability 0.8 from this size on, by the test of "
    "one value at significance 0.05 (hearsay ask change). Without panels the test allows for "
    "whatever the same people may do."
)
_CHANGES_OF_MEMOS = " Memos: where one person in ten answers otherwise in the second period."
_PAIRS = (
    "Records tell of two attributes together, as long as their rows are kept. A test of "
    "independence finds a dependence as often as one of so many users without privacy."
)


def show(found: Explanation, console: Console) -> None:
    """Print an explanation."""
    plan = found.plan
    console.print(headed(plan.survey, f"  {plan.title}"))
    print_wrapped(f"levels  {surveys.levels_in_words(plan)}", console)
    _lines("What a record reports", found.decision, console)
    _lines("Who is protected from what", found.protections, console)
    in_the_clear = explain_protections.in_the_clear(plan, found.users)
    _lines("What is in the clear besides levels and maps", in_the_clear, console)
    for name, attribute in plan.attributes.items():
        if isinstance(attribute.domain, Numeric) and attribute.domain.is_graded:
            console.print()
            console.print(_told_apart(name, attribute.domain))
    _lines("Which words will be found", explain_words.lines(plan, found.users), console)
    _lines("What sets and ratings tell", explain_sets.lines(plan, found.users), console)
    memos = any(row.memo for row in found.rows)
    maps = any(row.map for row in found.rows)
    if memos:
        _lines("What reports of several periods cost together", found.repeats, console)
    console.print()
    _show_errors(found, memos, maps)
    if found.costs:
        console.print()
        _show_costs(found)
        print_wrapped(_OVER_TIME, console)
        if maps:
            print_wrapped(_OVER_TIME_BY_MAP, console)
        for line in found.best:
            print_wrapped(f"  {line}", console)
        console.print()
    print_wrapped(_ERRORS, console)
    _lines("Ranges of numbers in bins, if these are spread evenly", found.ranges, console)
    console.print()
    _show_pooled(found, maps)
    if found.precisions:
        print_wrapped(worth.MEANING, console)
        _show_worth(worth.of(plan, found.precisions, found.users), found.users)
    if found.together:
        print_wrapped(_TOGETHER, console)
        _show_together(found)
    if found.changes:
        print_wrapped(_CHANGES + _CHANGES_OF_MEMOS * memos, console)
        _show_changes(found)
    if found.pairs:
        print_wrapped(_PAIRS, console)
        _show_pairs(found)


def _lines(title: str, lines: Sequence[str], console: Console) -> None:
    """Print lines below a title, if there are any."""
    if lines:
        console.print(headed(f"\n{title}"))
    for line in lines:
        print_wrapped(f"  {line}", console)


def _by_level(
    title: str,
    label: str,
    numbers: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    ruled: bool,
) -> None:
    """Print a table of rows that begin with a level and a label; `ruled` between the levels."""
    table = Table(title=title)
    for heading in ("level", label):
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right")
    before = rows[0][0]
    for row in rows:
        if ruled and row[0] != before:
            table.add_section()
        before = row[0]
        table.add_row(*row)
    tabular.show(table)


def _show_errors(found: Explanation, memos: bool, maps: bool) -> None:
    alone = "level and map" if maps else "level"
    table = Table(title=f"Each {alone} by itself, with {found.users:,} users at it")
    for heading in ("level", "attribute, map" if maps else "attribute", "mechanism"):
        table.add_column(heading)
    for heading in ("epsilon", "reported", "bytes", "error", *(["memo"] if memos else [])):
        table.add_column(heading, justify="right")
    for level in found.plan.levels.values():
        for row in (row for row in found.rows if row.level == level.name):
            table.add_row(
                row.level,
                f"{row.attribute}, {row.map}" if row.map else row.attribute,
                row.mechanism,
                f"{row.epsilon:.4f}",
                f"{row.chance:.0%}",
                str(row.bytes),
                f"{row.error:.4f}",
                *([f"{row.memo:.4f}" if row.memo else ""] if memos else []),
            )
        table.add_row(level.name, _WHOLE, "", f"{level.budget.record_epsilon:.4f}")
        table.add_section()
    tabular.show(table)


def _show_costs(found: Explanation) -> None:
    _by_level(
        f"What {found.periods:,} periods of answers cost one person",
        "attribute",
        ("reports", "sum of epsilons", f"epsilon at delta {DELTA:g}"),
        [
            (
                cost.level,
                cost.attribute or _WHOLE,
                f"{cost.reports:,.4g}",
                f"{cost.total:,.4g}",
                f"{cost.composed:,.4g}",
            )
            for cost in found.costs
        ],
        ruled=True,
    )


def _show_pooled(found: Explanation, maps: bool) -> None:
    evenly, and_ = ("levels and maps", ", without a map,") if maps else ("levels", "")
    users = f"{found.users:,} users"
    title = f"{users}, evenly over the {evenly}, against the strictest{and_} for all"
    table = Table("attribute", title=title)
    for heading in ("error", "error, all strictest", "users it would take"):
        table.add_column(heading, justify="right")
    for name, error in found.pooled.items():
        strictest = found.strict[name]
        factor = (strictest / error) ** 2
        table.add_row(name, f"{error:.4f}", f"{strictest:.4f}", f"{factor:.1f} times as many")
    tabular.show(table)


def _show_worth(found: Sequence[Worth], users: int) -> None:
    _by_level(
        f"What a respondent is worth, {users:,} users evenly over the levels",
        "attribute",
        (
            f"in respondents at {found[0].reference}",
            "information",
            "one more: variance",
        ),
        [
            (
                each.level,
                each.attribute or _WHOLE,
                f"{each.respondents:,.4g}",
                f"{each.share:.1%}",
                worth.lowered(each.lowers),
            )
            for each in found
        ],
        ruled=True,
    )


def _show_together(found: Explanation) -> None:
    _by_level(
        f"Asked together, with {found.users:,} users at the level",
        "share of",
        ("error", "asked apart", "users it takes"),
        [
            (row.level, row.name, f"{row.error:.4f}", f"{row.apart:.4f}", f"{row.factor:.2f} times")
            for row in found.together
        ],
        ruled=True,
    )


def _show_changes(found: Explanation) -> None:
    memos = any(each.memos is not None for each in found.changes)
    rows = []
    for each in found.changes:
        of_memos = "" if each.memos is None else f"{each.memos:.4f}"
        numbers = f"{each.alone:.4f}", f"{each.by_panels:.4f}", *([of_memos] if memos else [])
        rows.append((each.level, each.attribute, *numbers))
    _by_level(
        f"Smallest change between two periods, {found.users:,} users at the level",
        "attribute",
        ("no panels", f"{PANELS} panels", *(["memos, panels"] if memos else [])),
        rows,
        ruled=False,
    )


def _show_pairs(found: Explanation) -> None:
    _by_level(
        f"Two attributes together, with {found.users:,} users at the level",
        "attributes",
        ("error of a cell", "test: as many as"),
        [
            (
                pair.level,
                f"{pair.first} and {pair.second}",
                f"{pair.error:.4f}",
                f"{pair.as_many:,.0f}",
            )
            for pair in found.pairs
        ],
        ruled=False,
    )


def _told_apart(name: str, domain: Numeric) -> Table:
    """Return a table of some numbers: by how many epsilon a row's may be told from a column's."""
    numbers, rows = graded.told_apart(domain)
    title = f"{name}: how much of epsilon tells a number (row) from another"
    table = Table("", *numbers, title=title)
    for shown, row in zip(numbers, rows, strict=True):
        table.add_row(headed(shown), *row)
    return table


def show_split(plan: Plan, users: int, console: Console) -> None:
    """Print what two servers promise, against whom, and the errors beside those of local noise."""
    two = plan.two_servers
    assert two is not None
    (level,) = plan.levels.values()
    console.print(headed(plan.survey, f"  {plan.title}"))
    spent = account.epsilon_of(two.rho, two.delta)
    exact = two.exact_epsilon()
    helper = two.helper or f"key {two.helper_key.hex()[:16]}"
    console.print(headed("\nWho is protected from whom"))
    for line in (
        f"Each record is split between the server and its helper ({helper}). Either of them alone, "
        f"and whoever sees the sums, learns of a record no more than epsilon {spent:.4g} at delta "
        f"{two.delta:g}, if the other one is honest: it sums at least {two.least:,} records, of "
        f"which {two.least - two.colluding:,} are of honest devices.",
        f"By the published bound of the noise's divergence that is epsilon {spent:.6g}, which "
        "devices check. By the exact divergence it is "
        + (f"{exact:.6g}." if exact else "no more: it is not computed for noise this large."),
        "That is of any two records that a person may have, an empty one among them. That somebody "
        "answered is not hidden.",
        "Both servers together see each record with the noise of one device alone, of a standard "
        f"deviation of {math.sqrt(float(two.variance)) / two.layout.scale:.3g} answers in each "
        "cell. That protects nobody.",
        "A hostile device can add any number to a sum: no proof of range is made.",
        f"A period's records are summed once it is over, if {two.least:,} have come; late ones "
        "wait for as many again."
        if plan.period
        else f"Without periods, records are summed whenever {two.least:,} wait, so up to "
        f"{two.least - 1:,} of the last ones stay unsummed.",
    ):
        print_wrapped(f"  {line}", console)
    console.print()
    if users < two.least:
        print_wrapped(
            f"No sum can be made of {users:,} users, and nothing is learned of them: one takes "
            f"{two.least:,} or more. Ask more people, or declare a lower least, of "
            f"{LEAST:,} or more.",
            console,
        )
        return
    table = Table(title=f"Standard errors with {users:,} users who all answer")
    table.add_column("attribute")
    for heading in ("two servers", "local noise", "users it would take"):
        table.add_column(heading, justify="right")
    for name, (error, local) in two_servers.errors(plan, level.epsilon, users).items():
        times = (local / error) ** 2
        table.add_row(name, f"{error:.3g}", f"{local:.3g}", f"{times:,.0f} times as many")
    tabular.show(table)
    print_wrapped(
        f"Local noise is an equal part of epsilon {level.epsilon:g} for each attribute, with no "
        "delta and nobody to trust. Errors of a share are of one value, if all are equally "
        "frequent; of a mean, if numbers are spread evenly. They include that of asking so many "
        "people.",
        console,
    )


def show_weights(found: Weights) -> None:
    """Print the weights that explain an attribute by the others."""
    table = Table(title=f"Weights to explain {found.target}, by {found.rows:,} public rows")
    table.add_column("attribute", overflow="fold")
    for heading in ("tells (nats)", "weight now", "proposed"):
        table.add_column(heading, justify="right")
    for each in found.attributes:
        tells = "target" if math.isnan(each.importance) else f"{each.importance:.4f}"
        table.add_row(each.attribute, tells, f"{each.weight:g}", headed(f"{each.proposed:g}"))
    tabular.show(table)
