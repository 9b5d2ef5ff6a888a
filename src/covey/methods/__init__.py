"""Mechanisms of the papers, one file per idea."""
