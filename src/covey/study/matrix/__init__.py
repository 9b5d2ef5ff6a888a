"""Attacks against defences: the matrix of a method, and maps of its items before and after."""
