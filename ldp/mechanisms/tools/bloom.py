"""Bit positions of Bloom filters, the same on every machine."""

from hashlib import blake2b


def distinct_positions(text: bytes, salt: int, count: int, size: int) -> tuple[int, ...]:
    """Return `count` distinct positions below `size` for a string, ascending.

    They are the first that differ among word * size // 2**64 over the little-endian 64-bit
    words of BLAKE2b-512(text), personalised "hearsay", salted by `salt` and a block number
    from 0, each as 8 bytes little-endian. Needs count <= size and 0 <= salt < 2**64.
    """
    found: set[int] = set()
    block = 0
    while True:
        mix = salt.to_bytes(8, "little") + block.to_bytes(8, "little")
        digest = blake2b(text, salt=mix, person=b"hearsay").digest()
        for start in range(0, len(digest), 8):
            if len(found) == count:
                return tuple(sorted(found))
            found.add(int.from_bytes(digest[start : start + 8], "little") * size >> 64)
        block += 1
