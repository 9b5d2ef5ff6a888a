"""Encrypted parameters (`docs/encrypted-sums.md`): `ckks` has ciphertexts, `fleet` the exchange."""
