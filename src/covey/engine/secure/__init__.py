"""Secure aggregation: the server learns only the total of what clients contribute.

`docs/secure-sums.md` describes the protocol and its limits. An auditor reads `party`, where every
phase is documented, then `coordinator`, and then what both use: `graph`, `keys`, `shamir`,
`fixed_point` and `messages`. `fleet` puts the protocol before the clients of a run.
"""
