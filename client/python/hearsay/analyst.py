"""What an analyst asks a server."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from hearsay.transport import call, open_channel
from hearsay.v1 import analyst_pb2, analyst_pb2_grpc

if TYPE_CHECKING:
    import pandas as pd


class Analyst:
    """Ask for debiased statistics, each with its error."""

    def __init__(self, target: str, *, insecure: bool = False, timeout: float = 30.0) -> None:
        """Connect to "host:port"; each question waits at most `timeout` seconds."""
        self._channel: grpc.Channel = open_channel(target, insecure=insecure)
        self._stub = analyst_pb2_grpc.AnalystStub(self._channel)
        self._timeout = timeout

    def estimate(
        self,
        survey: str,
        attribute: str,
        *,
        levels: Sequence[str] = (),
        periods: Sequence[str] = (),
        confidence: float = 0.95,
        simultaneous: bool = False,
    ) -> "pd.DataFrame":
        """Return a DataFrame: one row per value, or the row "mean" of a number.

        Columns: estimate (unbiased, so possibly outside its range), standard_error (for the
        population), low and high (the interval at `confidence`, for each row by itself, or with
        `simultaneous` for all rows at once). `frame.attrs` holds the survey, attribute,
        statistic, confidence and the number of reports. `levels` and `periods` restrict which
        reports count; empty takes all, pooled.

        Needs pandas (`pip install 'hearsay[analyst]'`). Raises as `query`.
        """
        import pandas as pd

        answer = self.query(
            survey,
            attribute,
            levels=levels,
            periods=periods,
            confidence=confidence,
            simultaneous=simultaneous,
        )
        columns = ("estimate", "standard_error", "low", "high")
        frame = pd.DataFrame(
            [[getattr(row, column) for column in columns] for row in answer.rows],
            index=pd.Index([row.label for row in answer.rows], name=attribute),
            columns=list(columns),
        )
        frame.attrs = {
            "survey": survey,
            "attribute": attribute,
            "statistic": answer.statistic,
            "confidence": confidence,
            "simultaneous": simultaneous,
            "reports": answer.reports,
        }
        return frame

    def query(
        self,
        survey: str,
        attribute: str,
        *,
        levels: Sequence[str] = (),
        periods: Sequence[str] = (),
        confidence: float = 0.95,
        simultaneous: bool = False,
    ) -> analyst_pb2.EstimateResponse:
        """Return the same as a message, with the cohorts that went in; needs no pandas.

        Raises `InvalidInput` for an unknown survey, attribute or level, a confidence outside
        (0, 1), or where there are no reports yet; `Unreachable` where the server is.
        """
        request = analyst_pb2.EstimateRequest(
            survey=survey,
            attribute=attribute,
            levels=levels,
            periods=periods,
            confidence=confidence,
            simultaneous=simultaneous,
        )
        answer: analyst_pb2.EstimateResponse = call(self._stub.Estimate, request, self._timeout)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
