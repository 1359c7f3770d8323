"""The `hearsay` command."""

import os
import sys


def main() -> None:
    """Run the command; tell what is wrong in one line where the user can mend it."""
    # gRPC's core has a log of its own, past Python's, in which strangers may write what they
    # like: a line for every bad handshake. It reads this as it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from hearsay import InvalidInput, Unreachable
        from hearsay_server.cli import app
    except ModuleNotFoundError as error:
        sys.exit(f"hearsay: needs {error.name}: pip install 'hearsay[server]'")
    try:
        app()
    except (InvalidInput, Unreachable) as error:
        sys.exit(f"hearsay: {error}")


if __name__ == "__main__":
    main()
