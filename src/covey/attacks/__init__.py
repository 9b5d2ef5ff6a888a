"""Malicious clients, one file per idea."""
