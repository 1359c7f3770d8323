"""What an analyst asks a server, and what is made of its answers."""

from ldp.lazy import lazy

__all__, __dir__, __getattr__ = lazy(
    __name__,
    {
        "hearsay.asking.analyst": "Analyst",
        "hearsay.asking.margins": "read_margins",
        "hearsay.asking.plots": "figure",
        "hearsay.asking.selection": "Options Selection Weighting",
    },
)
