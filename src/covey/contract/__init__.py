"""The interfaces, records and defaults on which the author of a method and the engine agree."""
