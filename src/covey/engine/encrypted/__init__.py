"""Encrypted parameters: the server adds ciphertexts that only the clients can decrypt.

`docs/encrypted-sums.md` describes the protocol and its limits. `ckks` has the two halves, `Secret`
of the clients and `Public` of the server; `fleet` puts them between a server and its clients.
"""
