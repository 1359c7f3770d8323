"""Encryption of files by age (age-encryption.org), whose library does all of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from ldp.errors import InvalidInput, StorageFailed, needs

_BEGINNING = b"age-encryption.org/"

_WHAT, _EXTRA = "encryption of backups", "encryption"


def recipients(keys: Sequence[str]) -> list[Any]:
    """Read public keys, of age ("age1...") or SSH ("ssh-ed25519 ...", "ssh-rsa ...").

    Raises `InvalidInput` for any other text, and `MissingExtra` without pyrage.
    """
    with needs(_WHAT, _EXTRA):
        import pyrage

    found = []
    for key in keys:
        kind = pyrage.ssh if key.startswith("ssh-") else pyrage.x25519
        try:
            found.append(kind.Recipient.from_str(key))
        except pyrage.RecipientError as error:
            raise InvalidInput(
                "a recipient is a public key of age (age1...) or SSH (ssh-ed25519 ... or "
                f"ssh-rsa ...), got {key!r}: {error}"
            ) from None
    return found


def identities(file: Path) -> list[Any]:
    """Read private keys: a file of age-keygen, or of an SSH key without a passphrase.

    Raises `InvalidInput` where there is none in the file, and `MissingExtra` without pyrage.
    """
    with needs(_WHAT, _EXTRA):
        import pyrage

    try:
        content = file.read_bytes()
        if content.startswith(b"-----BEGIN"):
            return [pyrage.ssh.Identity.from_buffer(content)]
        lines = [line.strip() for line in content.decode("ascii").splitlines()]
        keys = [line for line in lines if line and not line.startswith("#")]
        found = [pyrage.x25519.Identity.from_str(key) for key in keys]
    except OSError as error:
        raise InvalidInput(f"cannot read the private key: {error}") from None
    except (UnicodeDecodeError, pyrage.IdentityError):
        found = []
    if not found:  # what was wrong with it is not said: it would quote a secret
        raise InvalidInput(
            f"{file} holds no private key of age (AGE-SECRET-KEY-1...) or SSH that can be read "
            "without a passphrase"
        )
    return found


def is_encrypted(file: Path) -> bool:
    """Tell whether a file was encrypted by age."""
    with file.open("rb") as stream:
        return stream.read(len(_BEGINNING)) == _BEGINNING


def encrypt(reader: IO[bytes], writer: IO[bytes], to: Sequence[Any]) -> None:
    """Encrypt a stream for `recipients`; raise `StorageFailed` where it cannot be written."""
    import pyrage

    try:
        pyrage.encrypt_io(reader, writer, list(to))
    except pyrage.EncryptError as error:
        raise StorageFailed(f"cannot encrypt: {error}") from None


def decrypt(file: Path, writer: IO[bytes], by: Sequence[Any]) -> None:
    """Decrypt a file with `identities`.

    Raises `StorageFailed` where none of them fits, or a byte of the file is changed or missing.
    What was written until then is then not to be used.
    """
    import pyrage

    try:
        with file.open("rb") as reader:
            pyrage.decrypt_io(reader, writer, list(by))
    except (pyrage.DecryptError, OSError) as error:
        raise StorageFailed(f"cannot decrypt {file}: {error}") from None
