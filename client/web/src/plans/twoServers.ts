/** What a plan says of two servers: the layout of a record, the noise, and the servers' keys. */

import { type Fraction, fraction, MAX_EPSILON } from "../core/exact.js";
import { InvalidInput } from "../errors.js";
import { keeps, rhoOf } from "../split/account.js";
import type { Bits } from "../split/shares.js";
import { MOST_VARIANCE, Skellam } from "../split/skellam.js";
import type { Attribute } from "./plan.js";
import type { WireLevel, WireSurvey } from "./protobuf.js";

/** The least and the most records of one sum. */
const LEAST = 100;
const MOST = 1 << 16;

const MOST_CELLS = 1 << 16;
const MOST_SCALE = 1 << 16;
const LEAST_DELTA = 1e-50;
const MOST_DELTA = 1e-4;
const KEY_BYTES = 32;

/** Variances are multiples of 1 / UNIT. */
const UNIT = 1n << 10n;

/** How records are split between the server that leads and its helper. */
export interface TwoServers {
  /** The least records that are summed, and how many of their devices may tell a server their noise. */
  readonly least: number;
  readonly colluding: number;
  readonly delta: number;
  readonly bits: Bits;
  /** One device's noise in each cell. */
  readonly noise: Skellam;
  /** X25519 keys; the leader's is empty before the survey is registered. */
  readonly leaderKey: Uint8Array;
  readonly helperKey: Uint8Array;
  /** Who runs the helper. */
  readonly helper: string;
  /** The integer that stands for one answer. */
  readonly scale: number;
  /** The attributes, and how many choices each has; 0 for a number, which fills two cells. */
  readonly blocks: readonly { readonly name: string; readonly size: number }[];
  /** How many cells a record has. */
  readonly cells: number;
}

/**
 * Return how a survey's records are split.
 *
 * Throws `InvalidInput` where the survey declares what is not collected this way, where a number is out of range or a key
 * is none, and unless there is one level, without mechanisms, whose epsilon the sums keep at delta: that is computed again
 * from the integers of the plan.
 */
export function readTwoServers(
  survey: WireSurvey,
  attributes: ReadonlyMap<string, Attribute>,
  levels: readonly WireLevel[],
): TwoServers {
  const { least, colluding, delta, scale, bits, variance, helper } = survey.two_servers!;
  const { leader_key: leaderKey, helper_key: helperKey } = survey.two_servers!;
  checkAlone(survey);
  check(least >= LEAST && least <= MOST, `least must be ${LEAST} to ${MOST}, got ${least}`);
  check(
    colluding >= 0 && colluding < least,
    `colluding must be below least, ${least}, got ${colluding}`,
  );
  check(
    delta >= LEAST_DELTA && delta <= MOST_DELTA,
    `delta must lie in [${LEAST_DELTA}, ${MOST_DELTA}], got ${delta}`,
  );
  check(bits === 16 || bits === 32 || bits === 64, `bits must be 16, 32 or 64, got ${bits}`);
  check(
    variance > 0 && variance <= Number(MOST_VARIANCE * UNIT),
    `the noise of a device must have a variance in (0, ${MOST_VARIANCE}], got ${variance / Number(UNIT)}`,
  );
  for (const [name, key] of [
    ["leader_key", leaderKey],
    ["helper_key", helperKey],
  ] as const) {
    const isMissing = !key.length && name === "leader_key";
    check(
      key.length === KEY_BYTES || isMissing,
      `${name} is an X25519 key of ${KEY_BYTES} bytes, got ${key.length}`,
    );
  }
  check(`${leaderKey}` !== `${helperKey}`, "both servers have one key, so one of them sees all");
  const blocks = [...attributes.values()].map(blockOf);
  check(scale >= 1 && scale <= MOST_SCALE, `scale must be 1 to ${MOST_SCALE}, got ${scale}`);
  const cells = blocks.reduce((sum, { size }) => sum + (size || 2), 0);
  check(cells <= MOST_CELLS, `a record has at most ${MOST_CELLS} cells, got ${cells}`);
  const made = fraction(BigInt(variance), UNIT);
  const honest = fraction(made.n * BigInt(least - colluding), made.d);
  const l1 = 2n * BigInt(blocks.length) * BigInt(scale); // records may differ in every block
  checkLevel(levels, rhoOf(l1, l1 * BigInt(scale), honest), delta);
  return {
    least,
    colluding,
    delta,
    bits: bits as Bits,
    noise: new Skellam(made),
    leaderKey,
    helperKey,
    helper,
    scale,
    blocks,
    cells,
  };
}

function check(holds: boolean, reason: string): void {
  if (!holds) throw new InvalidInput(`two_servers: ${reason}`);
}

function checkLevel(levels: readonly WireLevel[], rho: Fraction, delta: number): void {
  const [level] = levels;
  check(
    levels.length === 1,
    `all devices add the same noise, so there is one level, got ${levels.length}`,
  );
  const { name, epsilon, mechanisms, mapped, chances } = level!;
  check(
    !mechanisms.length && !mapped.length && !chances.length,
    "no answer is randomised by itself, so leave mechanisms out",
  );
  check(
    epsilon > 0 && epsilon <= MAX_EPSILON,
    `epsilon must lie in (0, ${MAX_EPSILON}], got ${epsilon}`,
  );
  check(
    keeps(rho, epsilon, delta),
    `level ${JSON.stringify(name)} promises epsilon ${epsilon} at delta ${delta}, but the noise gives more`,
  );
}

function blockOf({ name, domain, memo, cap }: Attribute): { name: string; size: number } {
  const shown = JSON.stringify(name);
  check(!memo && cap === Infinity, `${shown} can have neither memo nor cap`);
  const { isAlike, isSplit, size } = domain;
  check(isSplit, `${shown} must be categorical, or numeric by low, high and clamp alone`);
  check(
    isAlike,
    `all values of ${shown} are protected alike: leave sensitive, classes and maps out`,
  );
  return { name, size };
}

/** Throw `InvalidInput` where a survey declares more than sums of single attributes. */
function checkAlone(survey: WireSurvey): void {
  for (const name of ["views", "properties"] as const)
    check(!survey[name].length, `leave ${name} out: sums are of single attributes`);
  for (const name of ["sealing", "levels_differ_at_most"] as const)
    check(survey[name] === undefined, `leave ${name} out`);
  check(!survey.panels, "leave panels out");
  check(
    ["", "split"].includes(survey.budget),
    `every record has all attributes, so budget is split, got ${JSON.stringify(survey.budget)}`,
  );
  for (const { name, mechanism, weight } of survey.attributes)
    check(!mechanism && !weight, `${JSON.stringify(name)} can have neither mechanism nor weight`);
}
