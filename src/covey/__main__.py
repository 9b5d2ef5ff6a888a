"""`python -m covey`, where the command is not on the path."""

import sys

from covey.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
