"""Environment variables that stand in for an app's arguments."""

import logging
import os
import sys

_TRUE = {"1", "true", "yes", "on"}


def is_set(name: str) -> bool:
    """Tell whether a variable such as HEARSAY_DISABLED is switched on."""
    return os.environ.get(name, "").strip().lower() in _TRUE


def value(name: str) -> str | None:
    """Return a variable's value without white space around it, None where nothing is left."""
    return os.environ.get(name, "").strip() or None


def log_to_stderr() -> None:
    """Show all that the SDK logs on stderr; calling it again changes nothing."""
    logger = logging.getLogger("hearsay")
    logger.setLevel(logging.DEBUG)
    if not any(handler.get_name() == "hearsay-debug" for handler in logger.handlers):
        handler = logging.StreamHandler(sys.stderr)
        handler.set_name("hearsay-debug")
        handler.setFormatter(logging.Formatter("%(asctime)s hearsay %(levelname)s %(message)s"))
        logger.addHandler(handler)
