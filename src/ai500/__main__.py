"""`python -m ai500`: works from a source tree with nothing installed."""

from ai500.cli import main

main()
