"""Recommenders as pure functions of stacked parameters."""
