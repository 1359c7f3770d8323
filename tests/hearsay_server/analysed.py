"""Functions that tests run in processes for analysis, which import them by name."""

import os
import time
from pathlib import Path

import numpy as np
import scipy.linalg

from hearsay_server.answers import questions, rows
from ldp import InvalidInput


def pid() -> int:
    return os.getpid()


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def refuse() -> None:
    raise InvalidInput("the number must be even, got 3")


def fail() -> None:
    raise KeyError("a fault inside")


def spin() -> None:
    while True:
        pass


def sleep(told: Path) -> None:
    told.with_suffix(".new").write_text(str(os.getpid()))
    told.with_suffix(".new").rename(told)
    time.sleep(60)


def take_for_ever(*_: object) -> None:
    time.sleep(600)


def take(size: int) -> float:
    return float(np.ones(size).sum())


def factor(k: int) -> float:
    """Hold the interpreter's lock for seconds, as scipy's LAPACK routines do."""
    matrix = np.eye(k) + 1e-3
    return float(scipy.linalg.cholesky(matrix)[0, 0])


def mixed_in_small_chunks(frozen: bytes, page: questions.Page, levels: list[str]) -> list[bytes]:
    """Do as `questions.mixed`, in messages of some ten bytes."""
    rows._CHUNK = 10
    return questions.mixed(frozen, page, levels)
