"""The `hearsay` command."""

import errno
import os
import sys

_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Errors of a disk, or a reader, that takes no more of what a command prints or writes."""


def main() -> None:
    """Run the command; print an error of ours in one line, and exit with 1."""
    # gRPC's core has a log of its own, past Python's, in which strangers may write what they
    # like: a line for every bad handshake. It reads this as it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from hearsay_server.cli import app

        try:
            app(prog_name="hearsay")
        finally:
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        sys.exit(f"hearsay: needs {error.name}: pip install 'hearsay-ldp[server]'")
    except Exception as error:
        from hearsay.plain import plain  # most commands end well, without these
        from ldp.errors import HearsayError

        words = str(error)
        if isinstance(error, OSError) and error.errno in _UNWRITTEN:
            words = f"cannot write: {error.strerror}"
            # What is left to print would fail again as the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        elif isinstance(error, UnicodeEncodeError) and (bad := _not_utf8(sys.argv[1:])):
            words = f"arguments are UTF-8, and {bad} is not"
        elif not isinstance(error, HearsayError):
            raise
        if isinstance(error, ConnectionError):
            from hearsay.sending.transport import Unreachable
            from hearsay_server.commands.advice import advised

            words = advised(error) if isinstance(error, Unreachable) else words
        sys.exit(plain(f"hearsay: {' '.join(map(str.strip, words.splitlines()))}"))


def _not_utf8(arguments: list[str]) -> str:
    """Return the first argument with a byte that is no UTF-8, "" where there is none; a path may
    have such bytes."""
    return next((a for a in arguments if any("\ud800" <= c <= "\udfff" for c in a)), "")


if __name__ == "__main__":
    main()
