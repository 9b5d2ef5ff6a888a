"""One run: from a configuration to a folder of results."""
