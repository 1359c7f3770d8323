"""Public names of a package whose modules are loaded when a name is first asked for."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from ldp.errors import needs


def lazy(
    package: str, homes: Mapping[str, str], *, eager: Iterable[str] = (), extra: str | None = None
) -> tuple[list[str], Callable[[], list[str]], Callable[[str], Any]]:
    """Return `__all__`, `__dir__` and `__getattr__` of a package.

    `homes` maps a module to the names, with blanks between them, that the package takes from it;
    `eager` has the names that the package has already. `extra` is the extra that the modules need:
    an import that fails for want of a package of others raises `MissingExtra`, which names it.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}
    public = sorted({*modules, *eager})

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs(f"{package}.{name}", extra) if extra else nullcontext():
            return getattr(import_module(modules[name]), name)

    return public, public.copy, get
