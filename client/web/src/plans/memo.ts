/** Memos: the permanent answers that a device keeps, and the epsilon that each costs. */

import type { Coins } from "../coins.js";
import { compare, fromDouble, times } from "../core/exact.js";
import { logAbove } from "../core/logarithm.js";
import { InvalidInput } from "../errors.js";
import { checkText, checkValue, type Mechanism } from "../mechanisms/mechanism.js";
import { sha256AtOnce } from "../mechanisms/sha256.js";
import { sha256 } from "./digest.js";

const utf8 = new TextEncoder();

/**
 * Draw memos and reports of a memoised attribute at one level, and tell their epsilon. A value is a category, or for
 * RAPPOR a word.
 *
 * A device keeps, for as long as the attribute is asked:
 * 1. once, before any answer: `device = enroll(coins)`;
 * 2. for an answer whose `key(device, value)` it has no memo of: it spends `epsilon` and keeps
 *    `memo = memoize(device, value, coins)`;
 * 3. in each period it sends `report(memo, coins)`, which spends nothing.
 *
 * Guarantee, for devices that enroll but once and memoise a key but once: a report by itself is a draw from
 * the mechanism's channel; of two lives whose keys repeat at the same times, with d distinct keys each, all
 * reports together are d * `epsilon`-LDP. THAT and WHEN an answer changed, or an earlier one came back, is not protected.
 */
export class Memoizer {
  /** The epsilon of a memo, spent once for its key: the smallest double not below that of the integers. */
  readonly epsilon: number;
  /** Whether a report is its memo with fresh noise, rather than the memo itself. */
  readonly isNoisy: boolean;

  private constructor(
    readonly mechanism: Mechanism,
    /** The mechanism's key, 64 hexadecimal digits: a memo is good for this very mechanism only. */
    readonly identity: string,
  ) {
    this.epsilon = logAbove((mechanism.rounds ?? mechanism).ratio);
    this.isNoisy = mechanism.rounds?.noisy ?? false;
  }

  /** Build the memoizer of a mechanism of categories or texts. */
  static async of(mechanism: Mechanism): Promise<Memoizer> {
    const integers = [...mechanism.integers].map(([name, values]) => `${name}=${values}`).sort();
    const name = utf8.encode([mechanism.name, ...integers].join(";"));
    return new Memoizer(mechanism, await sha256(name));
  }

  /** Throw `InvalidInput` unless epsilon and noise fit an attribute declared with `memo`. */
  check(memo: number): void {
    const { name, epsilon } = this.mechanism;
    if (compare(fromDouble(this.epsilon), times(fromDouble(memo), fromDouble(epsilon))) > 0) {
      throw new InvalidInput(
        `${name}: a memo has epsilon ${this.epsilon}, more than ${memo} times the ${epsilon} of a report`,
      );
    }
    if (memo > 1 && !this.isNoisy) {
      throw new InvalidInput(
        `memo = ${memo} promises fresh noise in every report, and ${name} repeats its memo`,
      );
    }
  }

  /** Return the bytes that a device draws once, before any answer, and keeps; often none. */
  enroll(coins: Coins): Uint8Array {
    return this.mechanism.rounds?.enroll(coins) ?? new Uint8Array();
  }

  /**
   * Return the key of a value's memo, an integer >= 0; equal keys share a memo.
   *
   * Throws `InvalidInput` for a value outside the domain and for bytes that `enroll` cannot have given.
   */
  key(device: Uint8Array, value: number | string): number | bigint {
    this.checkInput(device, value);
    return this.mechanism.rounds?.key(device, value) ?? (value as number); // texts have rounds
  }

  /**
   * Return a key as a ledger keeps it, hashed with the ledger's salt (16 bytes).
   *
   * Against a glance only: who has the ledger has the salt, and the values are few.
   */
  hidden(salt: Uint8Array, key: number | bigint): string {
    const own = typeof key === "bigint" ? utf8.encode(key.toString(16)) : new Uint8Array(8);
    if (typeof key === "number") new DataView(own.buffer).setFloat64(0, key);
    const message = new Uint8Array(salt.length + own.length);
    message.set(salt);
    message.set(own, salt.length);
    return Array.from(sha256AtOnce(message).subarray(0, 16), (byte) =>
      byte.toString(16).padStart(2, "0"),
    ).join("");
  }

  /** Return a fresh memo, in the form of a code; throw `InvalidInput` as `key` does. */
  memoize(device: Uint8Array, value: number | string, coins: Coins): Uint8Array {
    this.checkInput(device, value);
    const { mechanism } = this;
    return mechanism.rounds?.memoize(device, value, coins) ?? mechanism.randomize(value, coins);
  }

  /** Return a fresh report; throw `InvalidInput` for bytes that are no memo, as far as the second round reads them. */
  report(memo: Uint8Array, coins: Coins): Uint8Array {
    const { name, width, rounds } = this.mechanism;
    if (memo.length !== width)
      throw new InvalidInput(`${name}: a memo has ${width} bytes, got ${memo.length}`);
    return rounds?.report(memo, coins) ?? memo.slice();
  }

  private checkInput(device: Uint8Array, value: number | string): void {
    const { name, k, input, rounds } = this.mechanism;
    const size = rounds?.deviceBytes ?? 0;
    if (device.length !== size)
      throw new InvalidInput(`${name}: a device keeps ${size} bytes, got ${device.length}`);
    if (input === "text") checkText(name, value);
    else checkValue(name, k, value);
  }
}
