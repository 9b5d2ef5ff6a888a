"""What the author of a method and the engine agree on: interfaces, records and defaults; nothing here runs."""
