/** Random coins: one stream of uniform bytes, and the draws that mechanisms are made of. */

/** A stream of independent, uniform random bytes. Mechanisms take every random choice from one. */
export interface Coins {
  /** Return the next `count` bytes of the stream. The caller owns the array. */
  bytes(count: number): Uint8Array;
}
