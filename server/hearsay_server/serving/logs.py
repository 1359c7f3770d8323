"""The server's log: one line for each event, as text for people or as JSON."""

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record; a record's other attributes were given as `extra`."""


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


def configure(format_: str, level: str, stream: TextIO | None = None) -> None:
    """Send the process's log to `stream`, or stderr, as "text" or "json", from `level` up."""
    handler = logging.StreamHandler(stream)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if format_ == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
