"""Configurations: the tree of a TOML file, its schema, overrides, and the objects that it names."""
