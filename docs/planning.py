"""Rewrite the tables of the pages in `TABLES`: `python docs/planning.py`."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from hearsay_server.surveys import catalogue
from ldp import KRR
from ldp.core.repeated import Repeats
from ldp.estimating.points import precision
from ldp.planning.composition import Guarantee, of_channels, optimal, repeated
from ldp.planning.over_time import at_equal_error
from ldp.planning.sizes import sample_size, two_wave_sample_size
from ldp.planning.value import Levels

HERE = Path(__file__).resolve().parent

PRIORS = (Fraction(1, 2), Fraction(1, 10), Fraction(1, 100))
TIMES = (1, 7, 30, 365)
OFTEN = (0.05, 0.1, 0.5, 1.0)
DELTA = 1e-6
YEARLY = (2, 10, 100, 1000)

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
SIZES = (2, 5, 10, 50, 200)
POINTS = (5, 11, 26, 64)
HALF_WIDTH = 0.02
HALF_WIDTHS = (0.05, 0.02, 0.01, 0.005)

WORTH_OF = (2, 8, 50)
WORTH_AT = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
REFERENCE = WORTH_AT.index(1.0)

PEOPLE = 10_000
SHARES = {
    "yes or no, 30% yes": (2, 0.3),
    "one of 10, 10%": (10, 0.1),
    "one of 100, 1%": (100, 0.01),
}
"""What is asked, with the number of categories and the share that is estimated."""


def odds() -> str:
    """Return what one report can tell, by epsilon, as rows of Markdown.

    Of yes or no by k-RR, which reaches the bound: from the exact rationals of its channel.
    """
    rows = {}
    for epsilon in (0.1, *EPSILONS, 8.0):
        kept, flipped = KRR(2, epsilon).channel().rows[0]
        cells = [f"{float(kept / flipped):,.2f}"]
        for prior in PRIORS:
            cells.append(_percent(float(prior * kept / (prior * kept + (1 - prior) * flipped))))
        rows[f"{epsilon:g}"] = cells
    titles = [f"{100 * float(prior):g}% becomes" for prior in PRIORS]
    return _table("epsilon", ["odds times at most", *titles], rows)


def periods() -> str:
    """Return what several records cost, and from 50% certain to what, as rows of Markdown."""
    rows = {}
    for epsilon in OFTEN:
        sums = [repeated(Guarantee(epsilon), times).epsilon for times in TIMES]
        rows[f"{epsilon:g}"] = [f"{s:g} ({_percent(1 / (1 + math.exp(-s)))})" for s in sums]
    return _table("epsilon of a record", [_records(times) for times in TIMES], rows)


def tighter() -> str:
    """Return the epsilons of several records but for a probability `DELTA`, as Markdown."""
    rows = {
        f"{epsilon:g}": [f"{optimal(epsilon, times, DELTA).epsilon:g}" for times in TIMES[1:]]
        for epsilon in OFTEN
    }
    return _table("epsilon of a record", [_records(times) for times in TIMES[1:]], rows)


def channels() -> str:
    """Return the same bound by what drew the reports, of epsilon 1 each, as Markdown."""
    built = [(f"one of {k:,}", catalogue.categorical("auto", k, 1.0)) for k in YEARLY]
    built += [(f"one of {k:,}", KRR(k, 1.0)) for k in YEARLY[2:]]
    built += [("mean of a number", catalogue.numeric("auto", 1.0))]
    rows = {
        f"{what}, by {mechanism.name}": [
            f"{of_channels([(mechanism, times)], DELTA):.3g}" for times in TIMES[1:]
        ]
        for what, mechanism in built
    }
    return _table("what is asked", [_records(times) for times in TIMES[1:]], rows)


def equal_errors() -> str:
    """Return mechanisms of the error that "auto" has at epsilon 1, and their costs, as Markdown."""
    rows = {}
    for k in YEARLY[1:]:
        uniform = np.full(k, 1 / k)
        error = float(np.sum(catalogue.categorical("auto", k, 1.0).variance(uniform, 1)))
        cells = []
        for times in (1, *TIMES[2:]):
            best = at_equal_error(k, error, times, delta=DELTA)[0]
            cells.append(f"{best.label} at {best.mechanism.epsilon:.2f}: {best.composed:.1f}")
        rows[f"one of {k:,}"] = cells
    return _table("what is asked", [_records(times) for times in (1, *TIMES[2:])], rows)


def people() -> str:
    """Return how many reports give every frequency an interval of +-`HALF_WIDTH`, as Markdown."""
    rows = {f"{k} categories": _reports(k, HALF_WIDTH) for k in SIZES}
    means = [sample_size(catalogue.numeric("auto", epsilon), 0.0, 0.02) for epsilon in EPSILONS]
    rows["mean of a number"] = [f"{n:,}" for n in means]
    return _table("what is asked", _titles(), rows)


def widths() -> str:
    """Return how many reports give 10 frequencies narrower intervals, as Markdown."""
    rows = {f"±{width:g}": _reports(10, width) for width in HALF_WIDTHS}
    return _table("95% interval", _titles(), rows)


def worth() -> str:
    """Return what a respondent is worth in respondents at epsilon 1, as Markdown."""
    rows = {}
    for k in WORTH_OF:
        uniform = np.full(k, 1 / k)
        built = [catalogue.categorical("auto", k, epsilon) for epsilon in WORTH_AT]
        variances = [float(np.mean(m.variance(uniform, 1))) for m in built]
        found = Levels(WORTH_AT, variances).in_respondents(np.ones(len(WORTH_AT)), REFERENCE)
        plain = variances[REFERENCE] / ((1 - 1 / k) / k)
        rows[f"{k} categories"] = [f"{number:.3g}" for number in (*found, plain)]
    return _table("what is asked", [*(f"epsilon {e:g}" for e in WORTH_AT), "no privacy"], rows)


def distributions() -> str:
    """Return how many reports give the share below the middle to +-0.05, as Markdown."""
    rows = {}
    for points in POINTS:
        waves = [catalogue.numeric("square_wave", epsilon, points - 1) for epsilon in EPSILONS]
        found = [precision([(wave, 1000, Repeats())], points).needed for wave in waves]
        rows[f"{points} values"] = [f"{n:,}" for n in found]
    return _table("values of the number", _titles(), rows)


def changes() -> str:
    """Return how many reports a wave show a change of one of 10 frequencies, as Markdown."""
    rows = {}
    for change in HALF_WIDTHS:
        built = [catalogue.categorical("auto", 10, epsilon) for epsilon in EPSILONS]
        rows[f"{change:g}"] = [
            f"{two_wave_sample_size(m, 0.1, change, same_people=True):,}" for m in built
        ]
    return _table("change", _titles(), rows)


def trust() -> str:
    """Return the standard errors of a share at epsilon 1 by who is trusted, as rows of Markdown.

    Epsilon bounds what the replacement of one answer changes. A server that is trusted adds
    discrete Laplace noise to the counts; each of two servers adds as much.
    """
    rows = {}
    for name, (k, share) in SHARES.items():
        sampling = share * (1 - share) / PEOPLE
        noise = _laplace_variance(1.0, 1 if k == 2 else 2) / PEOPLE**2
        local = float(catalogue.categorical("auto", k, 1.0).variance(share, PEOPLE))
        variances = (sampling, noise, 2 * noise, local - sampling)
        errors = [f"{100 * math.sqrt(variance):.3f}%" for variance in variances]
        rows[name] = [*errors, f"{PEOPLE * local / (sampling + 2 * noise):,.0f}"]
    noises = ["noise: one trusted server", "two servers, one honest", "nobody trusted (Hearsay)"]
    titles = ["sampling error", *noises, "people that Hearsay needs for the error of two servers"]
    return _table("what is asked", titles, rows)


def _laplace_variance(epsilon: float, sensitivity: int) -> float:
    """Return the variance of discrete Laplace noise (Ghosh et al. 2009) on an integer count."""
    decay = math.exp(-epsilon / sensitivity)
    return 2 * decay / (1 - decay) ** 2


def _reports(k: int, width: float) -> list[str]:
    built = [catalogue.categorical("auto", k, epsilon) for epsilon in EPSILONS]
    return [f"{sample_size(mechanism, 1 / k, width):,}" for mechanism in built]


def _titles() -> list[str]:
    return [f"epsilon {epsilon:g}" for epsilon in EPSILONS]


def _percent(share: float) -> str:
    if share > 0.999:
        return "over 99.9%"
    return f"{100 * share:.1f}%"


def _records(times: int) -> str:
    return f"{times} record" + "s" * (times > 1)


def _table(corner: str, titles: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    lines = [f"| {corner} | " + " | ".join(titles) + " |", "|--:|" + "--:|" * len(titles)]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    return "\n".join(lines)


TABLES: Mapping[str, Sequence[Callable[[], str]]] = {
    "choosing-epsilon.md": (odds, periods, tighter, channels, equal_errors),
    "how-many-people.md": (people, widths, distributions, changes),
    "incentives.md": (worth,),
    "comparison.md": (trust,),
}
"""By page, the tables between `<!-- name -->` and `<!-- end -->`."""


def main() -> None:
    for page, tables in TABLES.items():
        file = HERE / page
        text = file.read_text(encoding="utf-8")
        for table in tables:
            start = f"<!-- {table.__name__} -->\n"
            before, _, rest = text.partition(start)
            text = f"{before}{start}{table()}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
