/**
 * HPKE as this project uses it, by the package hpke: one suite, mode base, single-shot.
 *
 * Source: RFC 9180, "Hybrid Public Key Encryption", with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM. Its
 * primitives are those of Web Crypto, which have X25519 in Node from 20, Chromium from 133, Firefox from 130 and Safari
 * from 17.
 */

import { AEAD_AES_128_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from "hpke";
import { InvalidInput } from "../errors.js";

/** Bytes of the encapsulated key and of the cipher's tag. */
export const OVERHEAD_BYTES = 32 + 16;

const suite = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_128_GCM);

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
    let recipient = keys.get(name);
    if (!recipient) keys.set(name, (recipient = suite.DeserializePublicKey(key)));
    const made = await suite.Seal(await recipient, message, { info });
    const all = new Uint8Array(OVERHEAD_BYTES + message.length);
    all.set(made.encapsulatedSecret);
    all.set(made.ciphertext, made.encapsulatedSecret.length);
    return all;
  } catch {
    keys.delete(name);
    throw new InvalidInput(
      "a record cannot be sealed to a key of this plan: it is no X25519 key, or there is no X25519 here",
    );
  }
}
