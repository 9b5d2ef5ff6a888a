"""What a user can mend. Apart from the rest, so that the command line need not load torch to say it."""


class CoveyError(Exception):
    """Something a user can mend: shown as one line, exit code 2."""
