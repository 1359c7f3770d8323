/** Coins from a script: tests and conformance vectors name them by a seed, or give the bytes. */

import { createHash } from "node:crypto";
import { BlockCoins, type Coins } from "../src/coins.js";

/** Coins that count the bytes that are used of others. */
export class CountedCoins implements Coins {
  used = 0;

  constructor(private readonly coins: Coins) {}

  bytes(count: number): Uint8Array {
    this.used += count;
    return this.coins.bytes(count);
  }

  fill(target: Uint8Array): void {
    this.used += target.length;
    this.coins.fill(target);
  }

  uint32(): number {
    this.used += 4;
    return this.coins.uint32();
  }
}

/** Coins whose block n is the SHA-256 of a seed and n (8 bytes, the least significant first). */
export class ScriptedCoins extends BlockCoins {
  private blocks = 0n;

  constructor(private readonly seed: Uint8Array) {
    super(32);
  }

  protected override refill(block: Uint8Array<ArrayBuffer>): void {
    const number = new DataView(new ArrayBuffer(8));
    number.setBigUint64(0, this.blocks++, true);
    block.set(
      createHash("sha256").update(this.seed).update(new Uint8Array(number.buffer)).digest(),
    );
  }
}

/** Coins that are the bytes given, and throw where there are no more. */
export class LiteralCoins extends BlockCoins {
  private done = 0;

  constructor(private readonly stream: Uint8Array) {
    super(1);
  }

  protected override refill(block: Uint8Array<ArrayBuffer>): void {
    if (this.done === this.stream.length) throw new Error("the stream is used up");
    block[0] = this.stream[this.done++]!;
  }
}
