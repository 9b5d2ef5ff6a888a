"""Writes plain data as TOML, such as the resolved configuration of a run."""

import json
from typing import Any


def dumps(tree: dict[str, Any]) -> str:
    """The TOML text of nested dicts."""
    return "\n".join(_table(tree, "")).strip() + "\n"


def _table(tree: dict[str, Any], path: str) -> list[str]:
    lines = [f"{_key(k)} = {_value(v)}" for k, v in tree.items() if not _is_table(v)]
    for key, value in tree.items():
        name = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, dict):
            lines += ["", f"[{name}]", *_table(value, name)]
        elif _is_table(value):
            for one in value:
                lines += ["", f"[[{name}]]", *_table(one, name)]
    return lines


def _is_table(value: Any) -> bool:
    listed = isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)
    return isinstance(value, dict) or listed


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float):
        return repr(value)  # inf and nan are TOML's own words
    return _text(value) if isinstance(value, str) else str(value)


def _text(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted.replace("\x7f", "\\u007f")  # which JSON allows and TOML does not
