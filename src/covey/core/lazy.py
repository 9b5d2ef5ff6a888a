"""Packages whose public names are loaded on first use (PEP 562)."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

IMPORT = re.compile(r"^    from \.([\w.]+) import (.+)$", re.MULTILINE)
Hooks = tuple[Callable[[str], Any], Callable[[], list[str]]]


def lazy(package: str) -> Hooks:
    """Returns `__getattr__` and `__dir__` of a package that loads its modules on first use.

    The public names are those that the package imports for type checkers only, in lines such as
    `from .module import name as name` or `from .module import one, two`.
    """
    module = sys.modules[package]
    lines = IMPORT.findall(Path(str(module.__file__)).read_text("utf-8"))
    home = {name.split()[-1]: at for at, names in lines for name in names.split(",")}

    def load(name: str) -> Any:
        if name not in home:
            if name.isidentifier() and name[0] != "_" and find_spec(f"{package}.{name}"):
                return import_module(f"{package}.{name}")  # as if the package had imported it
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return load, lambda: sorted({*home, *getattr(module, "__all__", ())})
