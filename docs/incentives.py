"""Redraw incentives.png, what a respondent is worth by epsilon: `python docs/incentives.py`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from hearsay_server.surveys import catalogue
from ldp.planning.value import Levels

HERE = Path(__file__).resolve().parent
ONE = 24
EPSILONS = (2.0 ** (np.arange(-ONE, 37) / 12)).tolist()
COLOURS = {2: "#666666", 8: "#1b9e77", 50: "#d95f02"}


def main() -> None:
    """Draw a line for each number of categories, and one for what an answer is worth as it is."""
    figure, axis = plt.subplots(figsize=(7, 3.8))
    for k, colour in COLOURS.items():
        uniform = np.full(k, 1 / k)
        built = [catalogue.categorical("auto", k, epsilon) for epsilon in EPSILONS]
        variances = [float(np.mean(m.variance(uniform, 1))) for m in built]
        found = Levels(EPSILONS, variances).in_respondents(np.ones(len(EPSILONS)), ONE)
        axis.plot(EPSILONS, found, color=colour, label=f"{k} categories")
        axis.axhline(variances[ONE] / ((1 - 1 / k) / k), color=colour, lw=1, ls=":")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ticks = [0.1, 1, 10, 100]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xlabel("epsilon of the respondent")
    axis.set_ylabel("worth, in respondents at epsilon 1")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    figure.savefig(
        HERE / "incentives.png", dpi=110, bbox_inches="tight", metadata={"Software": None}
    )
    plt.close(figure)


if __name__ == "__main__":
    main()
