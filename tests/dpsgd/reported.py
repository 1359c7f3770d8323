"""One mechanism of each kind that can be learned through, small enough to enumerate."""

import numpy as np

from ldp import (
    HRR,
    KRR,
    HadamardResponse,
    LocalHashing,
    Mechanism,
    OrderedExponential,
    ProjectiveGeometry,
    SubsetSelection,
    UnaryEncoding,
    thresholding_histogram,
)

CATEGORICAL = {
    "krr": KRR(4, 1.0),
    "oue": UnaryEncoding(4, 1.0),
    "sue": UnaryEncoding.symmetric(4, 1.0),
    "the": thresholding_histogram(4, 1.0),
    "subset": SubsetSelection(6, 0.3),
    "hashing": LocalHashing(3, 0.5, prime=53),
    "hadamard": HadamardResponse(5, 1.0),
    "hrr": HRR(5, 1.0),
    "projective": ProjectiveGeometry(5, 1.0),
    "ordered": OrderedExponential(4, 1.0),
}


def every_code(mechanism: Mechanism) -> np.ndarray:
    """All codes, in the order of the channel's columns."""
    outputs = mechanism.channel().outputs
    if isinstance(mechanism, SubsetSelection):
        outputs = [sum(1 << value for value in subset) for subset in outputs]
    return np.array(outputs, dtype=mechanism.code_dtype).reshape(-1, *mechanism.code_shape)
