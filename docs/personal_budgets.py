"""Redraw personal-budgets.png and what its page prints: `python docs/personal_budgets.py`.

Nothing is drawn at random: the variances are those that the estimators have, or attain.
"""

import re
from functools import cache
from io import StringIO
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hearsay_server.commands.explained import show
from hearsay_server.printing import Console
from hearsay_server.surveys.explain import explain
from hearsay_server.surveys.survey import from_toml
from ldp.core.mechanism import Categorical
from ldp.core.policy import Policy
from ldp.estimating.likelihood import channel_matrix, fisher_covariance
from ldp.mechanisms import KRR
from ldp.planning.design import design

HERE = Path(__file__).resolve().parent
PAGE = HERE / "personal-budgets.md"
K = 8
USERS = 20_000
LEVELS = (0.5, 1.0, 2.0, 4.0)
MIXES = (
    (1.0, 0.0, 0.0, 0.0),
    (0.7, 0.1, 0.1, 0.1),
    (0.4, 0.3, 0.2, 0.1),
    (0.25, 0.25, 0.25, 0.25),
    (0.1, 0.1, 0.1, 0.7),
)
TRUTH = np.arange(1, K + 1) ** -1.5  # Zipf
TRUTH /= TRUTH.sum()

ALIKE = (tuple(range(K)),)
MAPS = (tuple(range(K // 2)), tuple(range(K // 2, K)))
SETTINGS = {
    "all users mind all answers": ALIKE,
    "half mind the first four answers, half the last four": MAPS,
}
LINES = {
    "strictest level for all": ("#666666", 1.4),
    "pooled by scalar weights (Nie et al.)": ("#d95f02", 3.5),
    "pooled by maximum likelihood": ("#1b9e77", 1.4),
}


@cache
def mechanism(epsilon: float, sensitive: tuple[int, ...]) -> Categorical:
    """Return k-RR where all answers are sensitive, otherwise the best that the policy allows."""
    if len(sensitive) == K:
        return KRR(K, epsilon)
    return design(Policy.one_sided(K, sensitive, epsilon)).mechanism


def cohorts(
    shares: tuple[float, ...], maps: tuple[tuple[int, ...], ...]
) -> list[tuple[Categorical, int]]:
    """Return the mechanism and the number of users of each level and map."""
    return [
        (mechanism(epsilon, sensitive), n)
        for epsilon, share in zip(LEVELS, shares, strict=True)
        for sensitive in maps
        if (n := round(USERS * share / len(maps)))
    ]


def errors(shares: tuple[float, ...], maps: tuple[tuple[int, ...], ...]) -> tuple[float, ...]:
    """Return the errors of `LINES`, root mean squares over the frequencies, in points."""
    pooled = cohorts(shares, maps)
    strict = KRR(K, LEVELS[0]).variance(TRUTH, USERS).sum()
    # Scalar weights in inverse proportion to the summed variances are the best there are.
    scalar = 1 / sum(1 / m.variance(TRUTH, n).sum() for m, n in pooled)
    likelihood = np.trace(fisher_covariance([(channel_matrix(m), n) for m, n in pooled], TRUTH))
    return tuple(100 * float(total / K) ** 0.5 for total in (strict, scalar, likelihood))


def explained() -> str:
    """Return what `hearsay survey explain` prints of the page's survey for 40,000 users."""
    toml = PAGE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    console = Console(file=StringIO(), width=80, color_system=None, record=True)
    show(explain(from_toml(toml, PAGE.name), PAGE.name, 40_000), console)
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def table() -> str:
    """Return the errors of `MIXES` in both settings, as rows of Markdown."""
    lines = ["| users at epsilon 0.5, 1, 2, 4 | strictest for all | scalar | likelihood |"]
    lines[0] += " scalar, two maps | likelihood, two maps |"
    lines.append("|---|--:|--:|--:|--:|--:|")
    for shares in MIXES:
        alike, maps = errors(shares, ALIKE), errors(shares, MAPS)
        cells = [f"{error:.2f}" for error in (*alike, *maps[1:])]
        lines.append(f"| {', '.join(f'{s:.0%}' for s in shares)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def mix(level: int, share: float) -> tuple[float, ...]:
    """Return the shares where one level has this share, and the others the rest evenly."""
    rest = (1 - share) / (len(LEVELS) - 1)
    return tuple(share if other == level else rest for other in range(len(LEVELS)))


def draw(file: Path) -> None:
    """Draw the error against the share of users at each level."""
    figure = plt.figure(figsize=(11, 7.2))
    parts = figure.add_gridspec(3, 1, height_ratios=[1, 1, 0.09])
    at = np.linspace(0, 1, 51).tolist()
    for row, (setting, maps) in enumerate(SETTINGS.items()):
        part = figure.add_subfigure(parts[row])
        part.suptitle(setting, fontsize=11, fontweight="bold")
        axes = part.subplots(1, len(LEVELS), sharex=True, sharey=True)
        for level, (axis, epsilon) in enumerate(zip(axes, LEVELS, strict=True)):
            found = np.array([errors(mix(level, share), maps) for share in at])
            for values, (label, (colour, width)) in zip(found.T, LINES.items(), strict=True):
                axis.plot(at, values, color=colour, label=label, lw=width)
            axis.set_yscale("log")
            axis.set_ylim(0.18, 4.5)
            axis.yaxis.set_major_locator(FixedLocator([0.25, 0.5, 1, 2, 4]))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.yaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
            axis.set_xlabel(f"users at epsilon {epsilon:g}")
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("error, percentage points")
        part.subplots_adjust(left=0.07, right=0.98, top=0.85, bottom=0.19, wspace=0.1)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, frameon=False, fontsize=10)
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)


def write(name: str, part: str) -> None:
    """Replace a marked part of the page."""
    pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(pattern.sub(lambda m: f"{m[1]}{part}\n{m[2]}", text), encoding="utf-8")


def main() -> None:
    write("errors", table())
    write("explain", f"```\n{explained()}\n```")
    draw(HERE / "personal-budgets.png")


if __name__ == "__main__":
    main()
