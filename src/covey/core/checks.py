"""Checks of options, with messages that name the option and the remedy."""

import difflib
from importlib.util import find_spec
from typing import Literal, get_args, get_origin, get_type_hints

from .errors import CoveyError


def positive(section: str, **options: float) -> None:
    """Raises an error for the first option of a section that is not over 0."""
    for name, value in options.items():
        if not value > 0:
            least = "at least 1 is needed" if isinstance(value, int) else "it must be over 0"
            raise CoveyError(f"{section}: {name} = {value}; {least}")


def among_choices(section: str, part: object) -> None:
    """Raises an error for a `Literal` field with another value, which only Python code can set."""
    for name, hint in get_type_hints(type(part)).items():
        value, valid = getattr(part, name), [str(choice) for choice in get_args(hint)]
        if get_origin(hint) is Literal and value not in get_args(hint):
            near = difflib.get_close_matches(str(value), valid, n=1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise CoveyError(f"{section}: {name} = {value!r}; {meant}valid are {', '.join(valid)}")


def installed(package: str, who: str, extra: str) -> None:
    """Raises an error if an optional package is missing; `who` needs it, `extra` installs it."""
    if not find_spec(package):
        raise CoveyError(f"{who} need the {package} package; pip install 'covey[{extra}]'")


def share(section: str, **options: float) -> None:
    """Raises an error for the first option of a section that is not from 0 to below 1."""
    for name, value in options.items():
        if not 0 <= value < 1:
            raise CoveyError(f"{section}: {name} = {value}; it is a share, from 0 to below 1")
