"""`ai500`, and `python -m ai500`, which works from a source tree with nothing installed."""

import sys


def main() -> None:
    """The command line; Ctrl-C while it is being loaded is no traceback either."""
    try:
        from ai500 import cli
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
