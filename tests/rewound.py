"""A node of the wire fleet that is set back, as if the server had lost a round."""

from covey.core.ragged import FieldDict
from covey.engine.fleet.wire import Node


def rewind(node: Node, before: FieldDict) -> None:
    """Back to what the node kept before the round. What it released counts all the same."""
    said = {k: v for k, v in node.kept.items() if k.startswith("said/")} if node.released else {}
    node.kept, node.answered = {**before, **said}, {}
