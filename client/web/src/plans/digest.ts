/** The hash that names a plan by its bytes. */

import { HearsayError } from "../errors.js";

/** Return the SHA-256 of bytes in hexadecimal; throw `HearsayError` where the platform has no hash. */
export async function sha256(data: Uint8Array): Promise<string> {
  // Browsers have crypto.subtle in secure contexts only.
  if (!globalThis.crypto?.subtle)
    throw new HearsayError("Hearsay needs a page of https or of localhost");
  const digest = new Uint8Array(
    await crypto.subtle.digest("SHA-256", data as Uint8Array<ArrayBuffer>),
  );
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
