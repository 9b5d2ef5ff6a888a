"""Secure aggregation (`docs/secure-sums.md`): the server learns only totals of contributions.

An auditor reads `party`, which documents every phase, `coordinator`, and then what both use.
"""
