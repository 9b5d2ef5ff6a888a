"""Robust rules, one file per idea."""
