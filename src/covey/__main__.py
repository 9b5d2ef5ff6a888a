"""Runs the command line as `python -m covey`, for installations without `covey` on the path."""

import sys

from covey.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
