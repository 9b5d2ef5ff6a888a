"""Shows lazy names and comments of fields in the API reference, which Griffe would miss."""

import ast
import io
import tokenize
from typing import Any

from griffe import Alias, Attribute, Docstring, Extension, Module


class Unseen(Extension):
    """Names that a package loads when they are first asked for, and the comments behind fields."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """An alias for each name in a package's table `_HOME`, {name: module below the package}."""
        table = pkg.members.get("_HOME")
        if isinstance(table, Attribute) and table.value is not None:
            for name, home in ast.literal_eval(str(table.value)).items():
                pkg.set_member(name, Alias(name, f"{pkg.path}.{home}.{name}"))

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Takes the comment behind a field, as in `dim: int = 32  # of a vector`, as its text."""
        if attr.docstring or len(attr.lines) != 1:
            return
        tokens = tokenize.generate_tokens(io.StringIO(attr.lines[0].strip()).readline)
        if comments := [
            token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT
        ]:
            first, rest = comments[0][:1], comments[0][1:]
            a_value = comments[0].split(" ")[0].endswith(":")  # such as full: all items
            attr.docstring = Docstring(
                f"{first if a_value else first.upper()}{rest}.", lineno=attr.lineno, parent=attr
            )
