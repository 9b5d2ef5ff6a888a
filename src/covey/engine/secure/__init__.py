"""Sums of clients' contributions of which the server can read the total only; docs/secure-sums.md has the protocol."""
