"""User-facing errors, in a module without imports, so that reporting one does not load torch."""


class CoveyError(Exception):
    """An error that the user can fix: the command line prints one line and exits with code 2."""
