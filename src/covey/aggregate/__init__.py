"""Grouping, combine and server step: the three parts of aggregation."""
