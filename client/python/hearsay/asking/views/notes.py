"""What there is to say beside an answer's numbers, made from the answer: in pages and commands."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearsay.asking.answer import Answer, Table, errors_text
from hearsay.plans.sealing import LEAST


def of_estimates(answer: Answer) -> list[str]:
    """Return what there is to say of estimates: of pooling, weights, and words to be found."""
    return [*_alike(answer), *weights(answer), *_findable(answer)]


def weights(answer: Answer) -> list[str]:
    """Say how unequal the weights of an answer with margins are."""
    effect, ends = (answer.figures.get(name) for name in ("design_effect", "weights"))
    if effect is None or not isinstance(ends, list | tuple):
        return []
    least, most = ends
    return [
        f"Weighted to known shares, beside the unweighted estimates: one person counts for "
        f"{least:.3g} to {most:.3g} people. Unequal weights alone raise the variance by the design "
        f"effect, {effect:.3g}. The shares are your own claim, and their errors are not in the "
        "intervals."
    ]


def sizes(answer: Answer) -> list[str]:
    """Say how large sets are on average, where that is not the first table."""
    if len(answer.tables) == 1:
        return weights(answer)
    mean = answer.table("mean")
    estimate, low, high = (mean.column(name).values[0] for name in ("estimate", "low", "high"))
    kind = "simultaneous " if answer.simultaneous else ""
    return [
        f"Mean size: {estimate:.4g} ({kind}{100 * answer.confidence:g}% interval {low:.4g} to "
        f"{high:.4g}).",
        *weights(answer),
    ]


def _alike(answer: Answer) -> list[str]:
    """Say how pooled and stratified estimates differ, where there are both."""
    table = answer.table()
    if "alike" not in table.names:
        return []
    groups = _chosen(answer)
    if answer.method.startswith("stratified"):
        estimate = (
            f"People chose their {groups}, so the estimate is of the mix of people who answered "
            "(stratified)."
        )
    else:
        estimate = f"The estimate holds under the bound that the survey declares: {answer.method}."
    said = [
        f"{estimate} The pooled one would hold for people of all {groups} who answer alike"
        f"{_narrower(table)}."
    ]
    tested, seen = (answer.figures.get(n) for n in ("homogeneity", "detectable_difference"))
    if isinstance(tested, float):
        verdict = "they do not answer alike" if tested < 0.05 else "nothing speaks against it"
        said.append(f"Test that all {groups} answer alike: p = {tested:.2g}, so {verdict}.")
    if isinstance(seen, float):
        said.append(f"Differences between {groups} below {seen:.2g} may go unseen.")
    return said


def _chosen(answer: Answer) -> str:
    """Say what people chose: levels, maps or both."""
    levels, maps = ({getattr(c, name) for c in answer.cohorts} for name in ("level", "map"))
    if len(maps) < 2:
        return "levels"
    return "levels and maps" if len(levels) > 1 else "maps"


def _narrower(table: Table) -> str:
    """Say by how much pooled intervals are narrower than the others, where they are."""
    apart = _numbers(table, "high") - _numbers(table, "low")
    pooled = _numbers(table, "alike_high") - _numbers(table, "alike_low")
    kept = np.mean(pooled[apart > 0] / apart[apart > 0]) if (apart > 0).any() else 1.0
    return f"; its intervals are {100 * (1 - kept):.0f}% narrower" if kept < 0.995 else ""


def _findable(answer: Answer) -> list[str]:
    shares: Any = answer.figures.get("findable")
    if not shares:
        return []
    steps = [
        (letters, share)
        for letters, share in enumerate(shares, 1)
        if letters == len(shares) or shares[letters] > share
    ]
    each = ", ".join(f"{share:.2%} (of up to {letters} letters)" for letters, share in steps)
    return [
        f"A word with a share of {each} is found about every second time, and rarer ones less. "
        f"With probability {answer.confidence:g} every word of the answer is somebody's."
    ]


def differences(answer: Answer) -> list[str]:
    """Say what the p-values of several differences mean, and what the errors are of."""
    said = [
        "Call those different where p (Holm) is at most 0.05: then the probability that any of "
        "them is not is at most 5%."
    ]
    if "panels" in answer.figures:
        text = errors_text(int(answer.figures["panels"]))  # type: ignore[arg-type]
        said.append(f"{text[0].upper()}{text[1:]}.")
    if "any_p_value" in answer.figures and len(answer.table()) > 1:
        said.append(f"Test that nothing changed at all: p = {answer.figures['any_p_value']:.2g}.")
    return said


def joint(answer: Answer) -> list[str]:
    """Say what the test of independence found."""
    test = answer.table("independence")
    p_value = _numbers(test, "pvalue")[0]
    verdict = "they are not" if p_value < 0.05 else "nothing speaks against it"
    return [
        f"Test that the two are independent: chi-squared {_numbers(test, 'statistic')[0]:.4g} with "
        f"{_numbers(test, 'dof')[0]:.0f} degrees of freedom, p = {p_value:.2g}: {verdict}."
    ]


def independent(answer: Answer) -> list[str]:
    """Say what the test of independence found, and what it could have found."""
    test = answer.table("independence")
    return [
        *joint(answer),
        f"The noncentrality, about {_numbers(test, 'noncentrality')[0]:.1f}, measures the "
        f"dependence; one of {_numbers(test, 'detectable')[0]:.1f} would be found at significance "
        "0.05 in 80% of cases.",
    ]


def fit(answer: Answer) -> list[str]:
    """Say what the column of naive coefficients is."""
    if "naive" not in answer.table().names:
        return []
    return ["naive: what the randomised answers give if they are taken for true ones."]


def suspicions(answer: Answer) -> list[str]:
    """Say which values were tested together."""
    targets: Any = answer.figures["targets"]
    return [f"Values that were looked at together: {', '.join(targets)}."] if targets else []


def mixing(answer: Answer) -> list[str]:
    """Say what the epsilons are of, what has none, and who must be honest."""
    figures: Any = answer.figures
    forged = figures["forged"]
    less = f", {forged:,} of each cohort taken for forged" if forged else ""
    return [
        "Each line is of records that left the shuffler together. Epsilon is that of a whole "
        f"record: local, and at delta {figures['delta']:g} in the shuffler's order{less}. "
        f"Nothing is claimed for fewer than {LEAST:,} honest records, for reports from memos, and "
        "where a report may reveal an answer.",
        figures["trust"],
    ]


def forecast(answer: Answer) -> list[str]:
    """Say how errors fall, and when the wanted one will be reached."""
    figures: Any = answer.figures
    said = [
        "The error of n people falls as 1 / sqrt(n) while as large a share of them chooses each "
        "level: of twice as many people it is 29% smaller."
    ]
    if answer.repeats > 1:
        said.append(
            "It falls by reports of other people. These errors allow for the same people in every "
            "period, whose further reports may not lower it at all: then the times below are too "
            "early."
        )
    if figures["closed"]:
        said.append("This survey is closed: no more reports come.")
        return said
    if figures["rate"] is None:
        said.append(
            "When that will be is not known: the survey has no periods, this is its first one, or "
            "no reports came of late."
        )
        return said
    when = f"in {figures['twice']}" if figures["twice"] else "after the year 9999"
    said.append(
        f"{figures['rate']:,.0f} reports came per period of late. At this rate there will be twice "
        f"as many reports {when}."
    )
    if "reached" in figures:
        reached = figures["reached"]
        known = answer.table().column("reports_for_goal").plain()
        rows = "Every row whose error is known" if None in known else "Every row"
        said.append(
            f"{rows} will have the wanted error by the end of {reached}."
            if reached
            else "The wanted error is further away than the year 9999."
        )
    return said


def nothing(answer: Answer) -> list[str]:
    """Say nothing: the numbers say it all."""
    return []


def _numbers(table: Table, name: str) -> NDArray[np.float64]:
    return np.asarray(table.column(name).values, dtype=np.float64)
