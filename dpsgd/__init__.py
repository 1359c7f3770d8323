"""Gaussian accounting and private training.

`dpsgd.accounting` needs no torch, which is loaded when an engine is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsgd.adaptive import QuantileClipping
    from dpsgd.clipping import AutomaticClipping, FlatClipping, PerLayerClipping
    from dpsgd.engine import PrivacyEngine
    from dpsgd.optimizers import AdamBC

_HOMES = {
    "AdamBC": "optimizers",
    "AutomaticClipping": "clipping",
    "FlatClipping": "clipping",
    "PerLayerClipping": "clipping",
    "PrivacyEngine": "engine",
    "QuantileClipping": "adaptive",
}
__all__ = [
    "AdamBC",
    "AutomaticClipping",
    "FlatClipping",
    "PerLayerClipping",
    "PrivacyEngine",
    "QuantileClipping",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"dpsgd.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
