/** How a survey's records are sealed: the threshold, the one size, and which key a period has. */

import { ONE } from "../core/exact.js";
import { InvalidInput } from "../errors.js";
import { label, start } from "./period.js";
import type { Level } from "./plan.js";
import { columnBytes, encodeBatch, encodeSealed, type WireSurvey } from "./protobuf.js";

/** The least threshold of a shuffler. */
const LEAST = 1000;

/** Padded records have a multiple of so many bytes, of which the first ones are the record's length. */
const STEP = 256;
export const PREFIX_BYTES = 4;

const MOST_KEYS = 255;
const MOST_DAYS = 366;
const MOST_SIZE = 1 << 21;
const KEY_BYTES = 32;

const utf8 = new TextEncoder();

/** What a plan says of sealing; both lists are empty before the survey is registered. */
export interface Sealing {
  readonly least: number;
  readonly size: number;
  /** X25519 keys. */
  readonly publics: readonly Uint8Array[];
  /** From when on each has its turn, in seconds since 1970. */
  readonly since: readonly number[];
}

/**
 * Return how a survey's records are sealed.
 *
 * Throws `InvalidInput` where the threshold is less than 1,000, the size no multiple of 256 up to 2 MiB or less than
 * records need, or the keys are no X25519 keys, not different, or not in the order of their turns.
 */
export function readSealing(
  survey: WireSurvey,
  levels: Iterable<Level>,
  properties: ReadonlyMap<string, readonly string[]>,
): Sealing {
  const { least, size, keys, rotate_days: days, key_count: count } = survey.sealing!;
  if (least < LEAST) throw new InvalidInput(`sealing: least must be >= ${LEAST}, got ${least}`);
  if (!(days >= 1 && days <= MOST_DAYS))
    throw new InvalidInput(`sealing: rotate_days must be 1 to ${MOST_DAYS}, got ${days}`);
  if (!(count >= 1 && count <= MOST_KEYS))
    throw new InvalidInput(`sealing: key_count must be 1 to ${MOST_KEYS}, got ${count}`);
  if (!(size > 0 && size <= MOST_SIZE) || size % STEP) {
    throw new InvalidInput(
      `sealing: size must be a multiple of ${STEP} bytes, at most ${MOST_SIZE}, got ${size}`,
    );
  }
  if (keys.length > MOST_KEYS)
    throw new InvalidInput(`sealing: there are at most ${MOST_KEYS} keys, got ${keys.length}`);
  for (const { public: key } of keys) {
    if (key.length !== KEY_BYTES)
      throw new InvalidInput(`sealing: a key has ${KEY_BYTES} bytes, got ${key.length}`);
  }
  if (new Set(keys.map((key) => `${key.public}`)).size !== keys.length)
    throw new InvalidInput("sealing: two keys are the same");
  if (keys.some(({ since }, i) => i && since <= keys[i - 1]!.since))
    throw new InvalidInput("sealing: the times of the keys must rise");
  const needed = leastSize(survey, levels, properties);
  if (size < needed)
    throw new InvalidInput(`sealing: records need ${needed} bytes of padding, size is ${size}`);
  return {
    least,
    size,
    publics: keys.map((key) => key.public),
    since: keys.map(({ since }) => since),
  };
}

/**
 * Return the place of the key of a period: the last one whose `since` is not after the period's beginning, or the
 * first one where there is none. Throws `InvalidInput` where the name is no period, and where there are no keys yet.
 */
export function keyOf({ since }: Sealing, unit: string, name: string): number {
  if (!since.length)
    throw new InvalidInput("this plan has no keys to seal with: its survey is not registered");
  const begin = start(unit, name) / 1000;
  return Math.max(0, since.filter((each) => each <= begin).length - 1);
}

/** Return the bytes of a padded record: the least multiple of 256 that fits the largest one. */
function leastSize(
  survey: WireSurvey,
  levels: Iterable<Level>,
  properties: ReadonlyMap<string, readonly string[]>,
): number {
  const bytes = (text: string): number => utf8.encode(text).length;
  const longest = [...properties.values()].map((values) =>
    values.reduce((a, b) => (bytes(b) > bytes(a) ? b : a)),
  );
  let largest = 0;
  for (const level of levels) {
    const columns = [...level.mechanisms].map(([attribute, own]) => {
      const made = [["", own] as const, ...(level.mapped.get(attribute) ?? [])].map(
        ([map, { width }]) => ({
          attribute,
          level: level.name,
          codes: new Uint8Array(width),
          present: new Uint8Array(),
          map,
        }),
      );
      return made.reduce((a, b) => (columnBytes(b) > columnBytes(a) ? b : a));
    });
    columns.sort((a, b) => columnBytes(b) - columnBytes(a));
    const reported = Number(level.budget.chances.reduce((a, b) => a + b, 0n) / ONE);
    const batch = encodeBatch({
      id: new Uint8Array(16).fill(1),
      survey: survey.name,
      revision: new Uint8Array(32).fill(1),
      period: label(survey.period, Date.UTC(2000, 0, 1)),
      rows: 1,
      columns: columns.slice(0, reported),
      panel: survey.panels,
      properties: longest,
    });
    largest = Math.max(largest, encodeSealed({ batch }).length);
  }
  return Math.ceil((PREFIX_BYTES + largest) / STEP) * STEP;
}
