"""`hearsay`, by a clock that stands still in a file until a test sets it, and LAG days behind.

    python clocked.py FILE LAG serve ...

The command line has no way to this: the clock is passed to the function behind `serve`.
"""

import os
import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path


def write(file: Path, now: datetime) -> None:
    """Set the clock; whoever reads it meanwhile reads the old time or the new one."""
    new = file.with_suffix(".new")
    new.write_text(now.isoformat())
    new.replace(file)


def main() -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is imported
    from hearsay_server.__main__ import main as hearsay
    from hearsay_server.serving import serve

    file, lag = Path(sys.argv.pop(1)), timedelta(days=int(sys.argv.pop(1)))

    def clock() -> datetime:
        return datetime.fromisoformat(file.read_text()) - lag

    serve.serve = partial(serve.serve, clock=clock)  # type: ignore[assignment]
    hearsay()


if __name__ == "__main__":
    main()
