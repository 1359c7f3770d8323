/** SHA-256 at once: the platform's own hash only answers later. */

const ROUNDS = 64;

/** Return the first 32 bits after the point of a root, as the standard takes its constants. */
const fractional = (root: number): number => ((root % 1) * 2 ** 32) | 0;

const primes: number[] = [];
for (let n = 2; primes.length < ROUNDS; n++) {
  if (primes.every((prime) => n % prime)) primes.push(n);
}
const CONSTANTS = primes.map((prime) => fractional(Math.cbrt(prime)));
const INITIAL = primes.slice(0, 8).map((prime) => fractional(Math.sqrt(prime)));

const rotated = (x: number, by: number): number => (x >>> by) | (x << (32 - by));

/**
 * Return the SHA-256 of a message below 2^29 bytes, 32 bytes.
 *
 * It takes the same steps for every message of a length. Source: FIPS 180-4.
 */
export function sha256AtOnce(message: Uint8Array): Uint8Array {
  const blocks = new DataView(new ArrayBuffer(64 * Math.ceil((message.length + 9) / 64)));
  new Uint8Array(blocks.buffer).set(message);
  blocks.setUint8(message.length, 0x80);
  blocks.setUint32(blocks.byteLength - 4, 8 * message.length);
  let state = INITIAL;
  for (let at = 0; at < blocks.byteLength; at += 64) state = compressed(state, blocks, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setInt32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

/** Return the state after the block of 64 bytes at a place. */
function compressed(state: readonly number[], blocks: DataView, at: number): number[] {
  const words = Array.from({ length: 16 }, (_, i) => blocks.getInt32(at + 4 * i));
  for (let i = 16; i < ROUNDS; i++) {
    const [early, late] = [words[i - 15]!, words[i - 2]!];
    words[i] =
      (words[i - 16]! +
        (rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3)) +
        words[i - 7]! +
        (rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10))) |
      0;
  }
  let [a, b, c, d, e, f, g, h] = state as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  for (let i = 0; i < ROUNDS; i++) {
    const first =
      (h +
        (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
        ((e & f) ^ (~e & g)) +
        CONSTANTS[i]! +
        words[i]!) |
      0;
    const second =
      ((rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [a, b, c, d, e, f, g, h] = [(first + second) | 0, a, b, c, (d + first) | 0, e, f, g];
  }
  return [a, b, c, d, e, f, g, h].map((word, i) => (word + state[i]!) | 0);
}
