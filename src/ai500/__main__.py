"""`ai500`, and `python -m ai500`, which works from a source tree with nothing installed."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it loads prints no traceback."""
    try:
        from ai500 import cli
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
