"""For the API reference: what Griffe, which reads source and does not run it, would otherwise miss."""

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
        """`dim: int = 32  # of a vector`: what stands behind a field is what it is for."""
        if attr.docstring or len(attr.lines) != 1:
            return
        tokens = tokenize.generate_tokens(io.StringIO(attr.lines[0].strip()).readline)
        if said := [
            token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT
        ]:
            first, rest = said[0][:1], said[0][1:]
            a_value = said[0].split(" ")[0].endswith(":")  # such as full: all items
            attr.docstring = Docstring(
                f"{first if a_value else first.upper()}{rest}.", lineno=attr.lineno, parent=attr
            )
