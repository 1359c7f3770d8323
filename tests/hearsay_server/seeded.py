"""`hearsay`, whose trainings draw a seed that is known, and which kills itself at a chosen place.

    python seeded.py PLACE TIMES serve ...

PLACE is a place in the aggregation of a round, or "none"; the process dies there when it comes by
for the last of TIMES times. The command line has no way to either.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

SEED = bytes(range(100, 132))

PLACES = ("close", "closed", "make", "made", "store", "storing", "stored", "wipe")


def main() -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is imported
    from hearsay_server.__main__ import main as hearsay
    from hearsay_server.serving import aggregating, serve
    from hearsay_server.storage import rounds, trainings
    from hearsay_server.storage.database import Database

    place, left = sys.argv.pop(1), int(sys.argv.pop(1))

    def come_by(here: str) -> None:
        nonlocal left
        left -= here == place
        if here == place and not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(module: Any, name: str, before: str, after: str) -> None:
        inner: Callable[..., Any] = getattr(module, name)

        def outer(*args: Any, **keys: Any) -> Any:
            come_by(before)
            result = inner(*args, **keys)
            come_by(after)
            return result

        setattr(module, name, outer)

    around(rounds, "close_in", "close", "")
    around(rounds, "work", "closed", "")
    around(aggregating.aggregation, "next_model", "make", "made")
    around(rounds, "store", "store", "stored")
    around(trainings, "set_trouble", "storing", "")  # in the middle of that transaction
    around(Database, "wipe", "wipe", "")
    draw = lambda size: SEED[:size]  # noqa: E731
    serve.running = partial(serve.running, draw=draw)  # type: ignore[assignment]
    hearsay()


if __name__ == "__main__":
    main()
