/**
 * HPKE as this project uses it, by the package @hpke/core: one suite, mode base, single-shot.
 *
 * Source: RFC 9180, "Hybrid Public Key Encryption", with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM. Its
 * primitives are those of Web Crypto, which have X25519 in Node from 20, Chromium from 133, Firefox from 130 and Safari
 * from 17.
 */

import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";
import { InvalidInput } from "../errors.js";

/** Bytes of the encapsulated key and of the cipher's tag. */
export const OVERHEAD_BYTES = 32 + 16;

const suite = new CipherSuite({
  kem: new DhkemX25519HkdfSha256(),
  kdf: new HkdfSha256(),
  aead: new Aes128Gcm(),
});

const keys = new Map<string, Promise<CryptoKey>>();

/**
 * Return the encapsulated key and the ciphertext of a message, bound to `info`.
 *
 * Throws `InvalidInput` for a public key with which everybody could decrypt (RFC 9180, 7.1.4), and where there is no
 * X25519 here.
 */
export async function encrypted(
  message: Uint8Array,
  key: Uint8Array,
  info: Uint8Array,
): Promise<Uint8Array> {
  const name = `${key}`;
  try {
    let recipientPublicKey = keys.get(name);
    if (!recipientPublicKey)
      keys.set(name, (recipientPublicKey = suite.kem.deserializePublicKey(exact(key))));
    const { enc, ct } = await suite.seal(
      { recipientPublicKey: await recipientPublicKey, info: exact(info) },
      exact(message),
    );
    const all = new Uint8Array(enc.byteLength + ct.byteLength);
    all.set(new Uint8Array(enc));
    all.set(new Uint8Array(ct), enc.byteLength);
    return all;
  } catch {
    keys.delete(name);
    throw new InvalidInput(
      "a record cannot be sealed to a key of this plan: it is no X25519 key, or there is no X25519 here",
    );
  }
}

/** Return the bytes of a view as a buffer of their own. */
function exact(bytes: Uint8Array): ArrayBuffer {
  return bytes.slice().buffer as ArrayBuffer;
}
