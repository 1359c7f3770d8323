"""The `hearsay` command."""

import sys


def main() -> None:
    """Run the command; tell what is wrong in one line where the user can mend it."""
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
