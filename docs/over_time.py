"""Redraw year-of-answers.png: `python docs/over_time.py`. Nothing is drawn at random."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from ldp.core.mechanism import Mechanism
from ldp.mechanisms import KRR, OneBitMean, SubsetSelection
from ldp.planning.composition import DELTA, of_channels
from ldp.planning.over_time import at_equal_error

HERE = Path(__file__).resolve().parent
K = 25
LONGEST = 3650
PERIODS = sorted({round(LONGEST ** (i / 40)) for i in range(41)})


def curves() -> dict[str, tuple[Mechanism, str]]:
    """Return the mechanisms that are drawn, by label, with their colours."""
    subset = SubsetSelection(K, 1.0)
    error = float(np.sum(subset.variance(np.full(K, 1 / K), 1)))
    krr = next(each for each in at_equal_error(K, error, 365) if each.label == "krr").mechanism
    return {
        "one yes-or-no question, epsilon 1": (OneBitMean(1.0), "#666666"),
        f"one of {K}, subset selection, epsilon 1": (subset, "#d95f02"),
        f"one of {K}, k-RR, epsilon {krr.epsilon:.2f}: the same error": (krr, "#1b9e77"),
        "one of 1,000, k-RR, epsilon 1": (KRR(1000, 1.0), "#7570b3"),
    }


def main() -> None:
    figure, axis = plt.subplots(figsize=(8, 4.5))
    axis.plot(PERIODS, PERIODS, color="black", ls=":", label="sum of epsilons, epsilon 1")
    for label, (mechanism, colour) in curves().items():
        found = [of_channels([(mechanism, times)]) for times in PERIODS]
        axis.plot(PERIODS, found, color=colour, lw=1.8, label=label)
    axis.axvline(365, color="#cccccc", lw=1, zorder=0)
    axis.text(365, 1.1, " a year", color="#666666", fontsize=9)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(1, LONGEST)
    axis.set_xlabel("daily answers of one person")
    axis.set_ylabel(f"epsilon of all of them at delta {DELTA:g}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    figure.savefig(
        HERE / "year-of-answers.png", dpi=110, bbox_inches="tight", metadata={"Software": None}
    )
    plt.close(figure)


if __name__ == "__main__":
    main()
