"""The aggregation server: stores reports, debiases, answers."""


def __getattr__(name: str) -> str:
    if name == "__version__":  # not imported above, as the command's help does without `ldp`
        from ldp.version import __version__

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
