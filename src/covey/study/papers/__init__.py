"""Reproduces the tables and figures of papers, with a verdict on each claim."""
