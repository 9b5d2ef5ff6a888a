"""One run: from a configuration to a folder of results."""

ROUNDS = "rounds.jsonl"  # in the folder: the log of its rounds
