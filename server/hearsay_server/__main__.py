"""The `hearsay` command."""

import os
import sys


def main() -> None:
    """Run the command; tell what is wrong in one line where the user can mend it."""
    # gRPC's core has a log of its own, past Python's, in which strangers may write what they
    # like: a line for every bad handshake. It reads this as it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from hearsay_server.cli import app

        app()
    except ModuleNotFoundError as error:
        sys.exit(f"hearsay: needs {error.name}: pip install 'hearsay-ldp[server]'")
    except Exception as error:
        from hearsay import InvalidInput, Unreachable  # most commands end well, without them

        if not isinstance(error, InvalidInput | Unreachable):
            raise
        sys.exit(f"hearsay: {error}")


if __name__ == "__main__":
    main()
