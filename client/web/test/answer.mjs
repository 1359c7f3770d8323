/**
 * Answer what tests/hearsay/test_two_sdks.py asks: one JSON object a line, from the built package.
 *
 * Integers are decimal strings, doubles 16 hexadecimal digits (IEEE 754, big-endian), bytes hexadecimal.
 */

import { createHash } from "node:crypto";
import { createInterface } from "node:readline";

import { BlockCoins } from "../dist/coins.js";
import {
  coin,
  cumulated,
  distinct,
  pick,
  place,
  point,
  threshold,
  toss,
  uniform,
  uniformOfMany,
} from "../dist/core/draws.js";
import { expBelow, fraction } from "../dist/core/exact.js";
import { logAbove } from "../dist/core/logarithm.js";
import { InvalidInput } from "../dist/errors.js";
import { build } from "../dist/mechanisms/index.js";
import { Numeric } from "../dist/plans/kinds/number.js";
import { Memoizer } from "../dist/plans/memo.js";
import { end, label, start } from "../dist/plans/period.js";
import { parsePlan } from "../dist/plans/plan.js";

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"));
const double = (text) => Buffer.from(text, "hex").readDoubleBE();
const fromDouble = (x) => {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(x);
  return bytes.toString("hex");
};

/** Coins from a seed, as in the conformance vectors, which count the bytes that are used. */
class Script extends BlockCoins {
  used = 0;
  #seed;
  #blocks = 0n;

  constructor(seed) {
    super(32);
    this.#seed = unhex(seed);
  }

  refill(block) {
    const number = Buffer.alloc(8);
    number.writeBigUInt64LE(this.#blocks++);
    block.set(createHash("sha256").update(this.#seed).update(number).digest());
  }

  fill(target) {
    this.used += target.length;
    super.fill(target);
  }

  uint32() {
    const four = this.bytes(4);
    return new DataView(four.buffer).getUint32(0, true);
  }
}

const mechanismOf = ({ name, epsilon, integers }) =>
  build(
    name,
    double(epsilon),
    new Map(Object.entries(integers).map(([field, values]) => [field, values.map(BigInt)])),
  );

const valueOf = ({ input }, value) => {
  if (input === "text") return String.fromCodePoint(...value);
  return input === "number" ? double(value) : value;
};

const answers = {
  async build({ mechanism }) {
    const { k, width, input } = await mechanismOf(mechanism);
    return { k, width, input };
  },

  /** Return the codes of all values, drawn one after the other from one stream. */
  async reports({ mechanism, values, seed }) {
    const built = await mechanismOf(mechanism);
    const coins = new Script(seed);
    return {
      codes: values.map((value) => hex(built.randomize(valueOf(built, value), coins))),
      used: coins.used,
    };
  },

  /** Return a device's bytes, and for each value its key, memo and two reports, from one stream. */
  async life({ mechanism, values, seed }) {
    const memoizer = await Memoizer.of(await mechanismOf(mechanism));
    const coins = new Script(seed);
    const device = memoizer.enroll(coins);
    const memos = values.map((shown) => {
      const value = valueOf(memoizer.mechanism, shown);
      const key = String(memoizer.key(device, value));
      const memo = memoizer.memoize(device, value, coins);
      return { key, memo: hex(memo), reports: [0, 1].map(() => hex(memoizer.report(memo, coins))) };
    });
    return { device: hex(device), memos, used: coins.used, epsilon: fromDouble(memoizer.epsilon) };
  },

  /** Return what a plan is parsed to, and which attributes some records report. */
  async plan({ plan, seed = "", records = 0 }) {
    const parsed = await parsePlan(unhex(plan));
    const coins = new Script(seed);
    const levels = Object.fromEntries(
      [...parsed.levels.values()].map((level) => [
        level.name,
        {
          epsilon: fromDouble(level.budget.recordEpsilon()),
          drawn: Array.from({ length: records }, () => level.budget.draw(coins)),
          memos: Object.fromEntries(
            [...level.memoizers].map(([name, memoizer]) => [name, fromDouble(memoizer.epsilon)]),
          ),
        },
      ]),
    );
    return { revision: parsed.revision, levels };
  },

  /** Return each answer's place, or null outside the domain; and places drawn for such. */
  numbers({ low, high, clamp, step, values, seed, drawn }) {
    const domain = new Numeric(double(low), double(high), clamp, double(step));
    const coins = new Script(seed);
    const place = (value) => {
      try {
        return fromDouble(domain.encode(double(value)));
      } catch (error) {
        if (error instanceof InvalidInput) return null;
        throw error;
      }
    };
    return {
      places: values.map(place),
      drawn: Array.from({ length: drawn }, () => fromDouble(domain.anything(coins))),
    };
  },

  /** Return the names of the periods of moments, with their starts and ends. */
  periods({ unit, moments }) {
    const names = moments.map((moment) => label(unit, moment));
    return {
      names,
      bounds: names.map((name) =>
        [start(unit, name), end(unit, name)].map((ms) => (Number.isFinite(ms) ? ms : null)),
      ),
    };
  },

  starts({ unit, names }) {
    return {
      accepted: names.map((name) => {
        try {
          return start(unit, name);
        } catch (error) {
          if (error instanceof InvalidInput) return null;
          throw error;
        }
      }),
    };
  },

  /** Return bounds of e^x, and the doubles at or above logarithms of ratios; fractions are [n, d]. */
  bounds({ exponents, ratios }) {
    const read = ([n, d]) => fraction(BigInt(n), BigInt(d));
    return {
      bounds: exponents.map((x) => Object.values(expBelow(read(x))).map(String)),
      logarithms: ratios.map((ratio) => fromDouble(logAbove(read(ratio)))),
    };
  },

  /** Return the results of single draws, from one stream. */
  draws({ seed, draws }) {
    const coins = new Script(seed);
    const results = draws.map(([kind, ...given]) => {
      switch (kind) {
        case "coin":
          return coin(threshold(BigInt(given[0])), coins);
        case "uniform":
          return Number(given[0]) <= 2 ** 32
            ? uniform(Number(given[0]), coins)
            : String(uniformOfMany(BigInt(given[0]), coins));
        case "pick":
          return pick(cumulated(given[0].map(BigInt)), coins);
        case "toss":
          return hex(toss(threshold(BigInt(given[0])), given[1], coins));
        case "distinct":
          return [...distinct(given[0], given[1], coins)].sort((a, b) => a - b);
        case "place":
          return place(double(given[0]), given[1], coins);
        default:
          return point(double(given[0]), given[1], coins);
      }
    });
    return { results, used: coins.used };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  let answer;
  try {
    answer = await answers[question.ask](question);
  } catch (error) {
    answer =
      error instanceof InvalidInput ? { refused: error.message } : { failed: String(error.stack) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
