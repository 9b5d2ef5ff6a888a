"""Attacks against defences: the matrix of a method, and maps of its items under attack."""
