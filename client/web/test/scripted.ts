/** Coins from a script: tests and conformance vectors name them by a seed. */

import { createHash } from "node:crypto";
import { BlockCoins } from "../src/coins.js";

/** Coins whose block n is the SHA-256 of a seed and n (8 bytes, the least significant first). */
export class ScriptedCoins extends BlockCoins {
  /** How many blocks were drawn. */
  private blocks = 0n;

  constructor(private readonly seed: Uint8Array) {
    super(32);
  }

  protected override refill(block: Uint8Array<ArrayBuffer>): void {
    const number = new DataView(new ArrayBuffer(8));
    number.setBigUint64(0, this.blocks++, true);
    block.set(createHash("sha256").update(this.seed).update(new Uint8Array(number.buffer)).digest());
  }
}
