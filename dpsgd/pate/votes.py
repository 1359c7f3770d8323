"""Which teacher learns from which records, and how teachers vote."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsgd.accounting.events import check_integer
from ldp import InvalidInput

Integers = NDArray[np.int64]


def partition(n: int, teachers: int, rng: np.random.Generator) -> list[Integers]:
    """Deal n records to teachers; return each teacher's row numbers, ascending.

    Every record goes to one teacher, and two teachers' numbers of records differ by one at most.
    The rows need not be secret: the guarantee holds for each way to deal them. n is public, since
    with another n the records would be dealt otherwise: a neighbour has a record replaced, and not
    one more or less. Raises `InvalidInput` unless 1 <= teachers <= n.
    """
    check_integer("the number of records", n, 1)
    if check_integer("the number of teachers", teachers, 1) > n:
        raise InvalidInput(f"every teacher needs a record: got {teachers} teachers, {n} records")
    return [np.sort(part) for part in np.array_split(rng.permutation(n), teachers)]


def count_votes(predictions: ArrayLike, classes: int) -> Integers:
    """Count the teachers' predictions, shape (teachers, questions); return (questions, classes).

    Raises `InvalidInput` unless they are integers in 0..classes-1, and classes >= 2.
    """
    check_integer("classes", classes, 2)
    array = np.asarray(predictions)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidInput(
            "predictions must be integers of shape (teachers, questions), got "
            f"{array.dtype} {array.shape}"
        )
    if array.size and not 0 <= array.min() <= array.max() < classes:
        raise InvalidInput(f"predictions must lie in 0..{classes - 1}")
    counts = np.zeros((array.shape[1], classes), dtype=np.int64)
    np.add.at(counts, (np.arange(array.shape[1]), array.astype(np.int64)), 1)
    return counts


def check_votes(votes: ArrayLike, teachers: int) -> Integers:
    """Return votes of shape (questions, classes) as integers; refuse all but one vote a teacher."""
    array = np.asarray(votes)
    if array.ndim != 2 or array.shape[1] < 2 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidInput(
            "votes must be integers of shape (questions, classes), with two classes or more, got "
            f"{array.dtype} {array.shape}"
        )
    # Python's integers, before sums of numpy's could overflow.
    if array.size and (array.min() < 0 or array.max() > teachers):
        raise InvalidInput(f"votes must lie in 0..{teachers}, the number of teachers")
    counts = array.astype(np.int64)
    wrong = np.flatnonzero(counts.sum(axis=1) != teachers)
    if wrong.size:
        raise InvalidInput(
            f"each of the {teachers} teachers has one vote on a question: the votes on question "
            f"{wrong[0]} do not add up to {teachers}"
        )
    return counts
