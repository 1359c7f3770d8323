/** Random coins: one stream of uniform bytes. `core/draws.ts` has the draws that are made of them. */

/**
 * A stream of independent, uniform random bytes. Mechanisms take every random choice from one.
 *
 * From the same bytes every Hearsay client makes the same report: docs/wire-mechanisms.md says in which
 * order the draws take them.
 */
export interface Coins {
  /** Return the next `count` bytes of the stream. The caller owns the array. */
  bytes(count: number): Uint8Array;
  /** Overwrite all of `target` with the next bytes of the stream. */
  fill(target: Uint8Array): void;
  /** Return the next 4 bytes of the stream as an integer, the least significant byte first. */
  uint32(): number;
}

/** Bytes asked from the platform at a time: a call takes a microsecond or two, whatever its size. */
const BLOCK = 4096;

/** Give all methods of `Coins` by one that fills an array, through a block that is read as it goes. */
export abstract class BlockCoins implements Coins {
  private readonly block: Uint8Array<ArrayBuffer>;
  private readonly view: DataView;
  private at: number;

  constructor(size: number) {
    this.block = new Uint8Array(size);
    this.view = new DataView(this.block.buffer);
    this.at = size;
  }

  /** Overwrite all of `block` with fresh random bytes. */
  protected abstract refill(block: Uint8Array<ArrayBuffer>): void;

  bytes(count: number): Uint8Array {
    const taken = new Uint8Array(count);
    this.fill(taken);
    return taken;
  }

  fill(target: Uint8Array): void {
    const { block } = this;
    for (let done = 0; done < target.length;) {
      if (this.at === block.length) this.next();
      const end = Math.min(block.length, this.at + target.length - done);
      target.set(block.subarray(this.at, end), done);
      // A byte that was used must not be found in memory later: it may tell an answer from its report.
      block.fill(0, this.at, end);
      done += end - this.at;
      this.at = end;
    }
  }

  uint32(): number {
    const { at } = this;
    if (at + 4 > this.block.length) {
      const four = this.bytes(4);
      return (four[0]! | (four[1]! << 8) | (four[2]! << 16) | (four[3]! << 24)) >>> 0;
    }
    const word = this.view.getUint32(at, true);
    this.view.setUint32(at, 0);
    this.at = at + 4;
    return word;
  }

  private next(): void {
    this.refill(this.block);
    this.at = 0;
  }
}

/**
 * Draw coins from the platform's cryptographic generator, `crypto.getRandomValues`.
 *
 * Bytes are asked 4 KiB at a time and erased as they are used. Each instance has a block of its own: a page, a
 * worker and a process make their own. Two copies of one memory, such as a virtual machine that is restored
 * twice from a snapshot, would draw the rest of the block alike: make a new instance after such a copy.
 */
export class SystemCoins extends BlockCoins {
  constructor() {
    super(BLOCK);
  }

  protected override refill(block: Uint8Array<ArrayBuffer>): void {
    crypto.getRandomValues(block);
  }
}
