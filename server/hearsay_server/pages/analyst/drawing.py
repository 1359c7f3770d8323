"""Pictures of tables, by the functions that `hearsay query --plot` draws with."""

import io

import pandas as pd


def png(tables: list[pd.DataFrame]) -> bytes:
    """Return the picture of some tables; raise `InvalidInput` for one that cannot be drawn.

    It is called in a process for analysis: matplotlib takes much time and memory.
    """
    from hearsay.asking import plots

    for table in tables:
        quantiles = table.index.name == "quantile"
        statistic = table.attrs["attribute"] if quantiles else "share"
        table.attrs.setdefault("statistic", statistic)
        table.attrs.setdefault("warning", "")
    made = io.BytesIO()
    plots.figure(*tables).savefig(made, format="png")
    return made.getvalue()
