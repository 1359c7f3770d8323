"""Rules that run layers so that per-sample gradients can be formed.

One file for each family, one function for each rule, registered by the layer's exact type.
"""

from dpsgd.layers import attention, convolution, embedding, linear, normalization, recurrent
from dpsgd.layers.fallback import by_sample
from dpsgd.layers.registry import rule, rules_for

__all__ = [
    "attention",
    "by_sample",
    "convolution",
    "embedding",
    "linear",
    "normalization",
    "recurrent",
    "rule",
    "rules_for",
]
