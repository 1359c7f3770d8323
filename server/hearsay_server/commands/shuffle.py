"""`hearsay shuffle`: what random order gives a cohort's reports."""

from typing import Annotated

import typer

from hearsay_server.commands import plotting, plotting_plans
from hearsay_server.commands.connect import AsJson
from hearsay_server.commands.plotting import Plot
from hearsay_server.commands.plotting_plans import Axis
from hearsay_server.printing import say, say_json


def shuffle(
    epsilon: Annotated[float, typer.Option(help="What one report spends.")],
    n: Annotated[
        int, typer.Option(help="The size of the COHORT: one attribute, one level, one period.")
    ],
    delta: Annotated[float, typer.Option(help="The delta of the bound.")] = 1e-6,
    krr: Annotated[
        int | None, typer.Option(help="k-RR with so many categories; otherwise any mechanism.")
    ] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Bound the epsilon of a cohort's reports for observers who see them only in random order.

    Holds against everyone but the shuffler, if the other members of the cohort are honest.
    Cohort, attribute and level are in the clear, so reports of others do not count.
    """
    from ldp import KRR
    from ldp.assurance import amplification

    if plot is not None:
        plotting.check(plot)

    def together(n: int) -> amplification.Shuffled:
        if krr is not None:
            return amplification.shuffled([KRR(krr, epsilon)], n, delta)
        return amplification.Shuffled(amplification.clone_bound(epsilon, n, delta), "clones")

    central = together(n)
    if plot is not None:
        plotting_plans.curve(
            f"Reports of epsilon {epsilon:g} in random order",
            (float(n), central.epsilon),
            lambda size: together(max(1, round(size))).epsilon,
            (
                Axis("reports of one cohort", lambda n: f"{n:,.0f} reports"),
                Axis(f"epsilon at delta {delta:g}", lambda e: f"{e:.3g}"),
            ),
            plot,
        )
    if as_json:
        document: dict[str, object] = {"epsilon": epsilon, "n": n, "delta": delta}
        document |= {"shuffled_epsilon": central.epsilon, "bound": central.bound}
        say_json(document)
        return
    say(
        f"{n:,} reports of one cohort, each of epsilon {epsilon:g}, in random order: "
        f"epsilon {central.epsilon:.5g} at delta {delta:g} (bound: {central.bound})"
    )
