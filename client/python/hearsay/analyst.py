"""What an analyst asks a server."""

import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc

from hearsay.transport import Tls, Token, call, open_channel
from hearsay.v1 import analyst_pb2, analyst_pb2_grpc

if TYPE_CHECKING:
    import pandas as pd


class Analyst:
    """Ask for debiased statistics, each with its error."""

    def __init__(
        self,
        target: str,
        *,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
        timeout: float = 30.0,
    ) -> None:
        """Connect to "host:port"; each question waits at most `timeout` seconds.

        `tls` names other files than the system's authorities; `token` is the analyst's, where
        the server asks for one.
        """
        self._channel: grpc.Channel = open_channel(target, tls=tls, token=token, insecure=insecure)
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
        method: str = "",
    ) -> "pd.DataFrame":
        """Return a DataFrame: one row per value, or the row "mean" of a number.

        Columns: estimate (unbiased, so possibly outside its range), standard_error (for the
        population), low and high (the interval at `confidence`, for each row by itself, or with
        `simultaneous` for all rows at once). `frame.attrs` holds the survey, attribute,
        statistic, confidence, method, homogeneity, warning and the number of reports. `levels`
        and `periods` restrict which reports count; empty takes all, pooled by `method`: "mle",
        "gls", "inverse_variance" or "scalar", by default the best that is quick. Where the
        levels differ so much that they cannot be of one population (`homogeneity` is the
        p-value), the estimate is stratified instead, and a warning says so.

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
            method=method,
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
            "method": answer.method,
            "homogeneity": answer.homogeneity if answer.HasField("homogeneity") else None,
            "warning": answer.warning,
        }
        if answer.warning:
            warnings.warn(answer.warning, stacklevel=2)
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
        method: str = "",
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
            method=method,
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
