"""Keys (X25519, HKDF-SHA256), masks (AES-256, counter mode) and sealed packets (AES-256-GCM)."""

import hashlib

import numpy as np

from .fixed_point import Integers

KEY_BYTES, TAG_BYTES, HASH_BYTES = 32, 16, 16
ZEROS = memoryview(bytes(1 << 17))  # a piece of a mask, small enough to stay in the cache


class BadKey(ValueError):
    """A public key of low order, which no honest client has."""


class BadPacket(ValueError):
    """A sealed packet that was changed, or was sealed for another client."""


class Pair:
    """A key pair for one sum."""

    def __init__(self, secret: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        made = X25519PrivateKey.from_private_bytes(secret) if secret else None
        self._key = made or X25519PrivateKey.generate()
        self.public = self._key.public_key().public_bytes_raw()

    @property
    def secret(self) -> bytes:
        return self._key.private_bytes_raw()

    def agree(self, other: bytes, context: bytes) -> bytes:
        """A key that only the owner of `other` can compute too, bound to both keys and the sum."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        try:
            common = self._key.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError as error:
            raise BadKey("a public key of low order") from error
        both = b"".join(sorted((self.public, other)))
        return HKDF(SHA256(), KEY_BYTES, context, both).derive(common)


def mask(y: Integers, key: bytes, minus: bool = False) -> None:
    """Adds or subtracts a key's mask, the key stream of AES-256, in place; one mask for a key."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    change = np.subtract if minus else np.add
    piece = bytearray(len(ZEROS) + 16)
    for start in range(0, len(y), len(ZEROS) // y.itemsize):
        some = y[start : start + len(ZEROS) // y.itemsize]
        cipher.update_into(ZEROS[: some.nbytes], piece)
        change(some, np.frombuffer(piece, y.dtype, len(some)), out=some)


def seal(key: bytes, sender: int, receiver: int, plain: bytes) -> bytes:
    """Encrypts a packet. A key serves one packet in each direction, which is the nonce."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).encrypt(_nonce(sender, receiver), plain, None)


def unseal(key: bytes, sender: int, receiver: int, packet: bytes) -> bytes:
    """Decrypts a packet; `BadPacket` unless it was sealed with this key in this direction."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(_nonce(sender, receiver), packet, None)
    except InvalidTag as error:
        raise BadPacket(f"the packet of client {sender} for {receiver} was changed") from error


def commit(share: bytes) -> bytes:
    """A hash by which the server recognises a true share, and which does not disclose the share."""
    return hashlib.sha256(share).digest()[:HASH_BYTES]


def _nonce(sender: int, receiver: int) -> bytes:
    return bytes(11) + bytes([sender < receiver])
