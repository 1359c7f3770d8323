"""The one exception type of `ldp`."""


class InvalidInput(ValueError):
    """Say what was given, what is expected, and change nothing."""
