/** SHA-256 of a short message at once: the platform's own hash only answers later. */

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
 * Return the SHA-256 of at most 55 bytes, 32 bytes.
 *
 * It takes the same steps for every message of a length. Source: FIPS 180-4.
 */
export function sha256OfShort(message: Uint8Array): Uint8Array {
  const block = new DataView(new ArrayBuffer(64));
  new Uint8Array(block.buffer).set(message);
  block.setUint8(message.length, 0x80);
  block.setUint32(60, 8 * message.length);
  const words = Array.from({ length: 16 }, (_, i) => block.getInt32(4 * i));
  for (let i = 16; i < ROUNDS; i++) {
    const [early, late] = [words[i - 15]!, words[i - 2]!];
    words[i] =
      (words[i - 16]! +
        (rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3)) +
        words[i - 7]! +
        (rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10))) |
      0;
  }
  let [a, b, c, d, e, f, g, h] = INITIAL as [
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
  const digest = new DataView(new ArrayBuffer(32));
  [a, b, c, d, e, f, g, h].forEach((word, i) => digest.setInt32(4 * i, word + INITIAL[i]!));
  return new Uint8Array(digest.buffer);
}
