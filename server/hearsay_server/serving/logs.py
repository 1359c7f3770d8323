"""The server's log: one line for each event, as text for people or as JSON."""

import json
import logging
import textwrap
import time
from datetime import UTC, datetime
from typing import Any, TextIO

from hearsay.plain import plain
from hearsay_server.storage.database import is_away

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record; a record's other attributes were given as `extra`."""


class TextFormatter(logging.Formatter):
    """One line for each event, whatever its words, with any traceback indented below it.

    A client chooses some of the words, as of a name: it can neither forge a line nor send a
    terminal commands.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line of the event itself."""
        return plain(super().formatMessage(record)).replace("\n", "\\n")

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the lines of a traceback."""
        return textwrap.indent(plain(super().formatException(ei)), "  ")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, extras, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


_QUIET = 60.0
"""Seconds without a failure of the database after which the next one is another outage."""


class OncePerOutage(logging.Filter):
    """Pass one line, without its traceback, of all that fails while the database is away."""

    def __init__(self) -> None:
        super().__init__()
        self._last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record is logged."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not is_away(error):
            return True
        now = time.monotonic()
        begins = now - self._last > _QUIET
        self._last = now
        if begins:
            cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            record.msg, record.args = "%s: the database is away: %s", (record.getMessage(), cause)
            record.exc_info = record.exc_text = None
        return begins


def configure(format_: str, level: str, stream: TextIO | None = None) -> None:
    """Send the process's log to `stream`, or stderr, as "text" or "json", from `level` up.

    While the database is away one line says so, instead of a traceback for each call that fails.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter())
    handler.addFilter(OncePerOutage())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
