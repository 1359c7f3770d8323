/**
 * Additive shares modulo 2^bits: each of the two is uniform, and together they are the record.
 *
 * Share A is a seed of 32 bytes; share B is the record minus the numbers that the seed stands for, the keystream of
 * AES-256 in counter mode from a counter of zero, in little-endian words. One server that has one share learns nothing of
 * the record, as far as AES-256 is a pseudorandom function. Python's `ldp.two_servers.shares` is the same.
 */

import type { Coins } from "../coins.js";

const SEED_BYTES = 32;

export type Bits = 16 | 32 | 64;

/** The two shares of a record. */
export interface Shares {
  readonly seed: Uint8Array;
  readonly rest: Uint8Array;
}

/** Return the two shares of integers; negative ones are taken modulo 2^bits. */
export async function split(cells: readonly number[], bits: Bits, coins: Coins): Promise<Shares> {
  const seed = coins.bytes(SEED_BYTES);
  const rest = await keystream(seed, (cells.length * bits) / 8);
  const view = new DataView(rest.buffer);
  for (const [i, cell] of cells.entries()) {
    if (bits === 16) view.setUint16(2 * i, cell - view.getUint16(2 * i, true), true);
    else if (bits === 32) view.setUint32(4 * i, cell - view.getUint32(4 * i, true), true);
    else view.setBigUint64(8 * i, BigInt(cell) - view.getBigUint64(8 * i, true), true);
  }
  return { seed, rest };
}

async function keystream(seed: Uint8Array, size: number): Promise<Uint8Array<ArrayBuffer>> {
  const raw = Uint8Array.from(seed);
  const key = await crypto.subtle.importKey("raw", raw, "AES-CTR", false, ["encrypt"]);
  const counted = { name: "AES-CTR", counter: new Uint8Array(16), length: 128 };
  return new Uint8Array(await crypto.subtle.encrypt(counted, key, new Uint8Array(size)));
}
