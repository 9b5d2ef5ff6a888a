"""A paper's tables as one command, with a verdict on each of its claims."""
