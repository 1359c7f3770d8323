/** The periods of a survey's time unit: their names, starts and ends, in UTC. */

import { InvalidInput } from "../errors.js";

/** The only period of a survey that takes one record per user, ever. */
export const ONCE = "once";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

/** The length of a unit's longest period, in milliseconds. */
const LONGEST: Readonly<Record<string, number>> = {
  PT1H: HOUR,
  P1D: DAY,
  P1W: 7 * DAY,
  P1M: 31 * DAY,
  P1Y: 366 * DAY,
};

const FORMS: Readonly<Record<string, RegExp>> = {
  PT1H: /^(\d{4})-(\d\d)-(\d\d)T(\d\d)$/,
  P1D: /^(\d{4})-(\d\d)-(\d\d)$/,
  P1W: /^(\d{4})-W(\d\d)$/,
  P1M: /^(\d{4})-(\d\d)$/,
  P1Y: /^(\d{4})$/,
};

const FIRST = Date.UTC(1000, 0, 1);
const LAST = Date.UTC(10000, 0, 1);

/** Throw `InvalidInput` unless `unit` is a survey's period: "", PT1H, P1D, P1W, P1M or P1Y. */
export function checkUnit(unit: string): void {
  if (unit && !Object.hasOwn(FORMS, unit)) {
    throw new InvalidInput(
      `period must be empty or one of ${Object.keys(FORMS).join(", ")}, got ${JSON.stringify(unit)}`,
    );
  }
}

/** Name the period of `unit` that a moment belongs to (ms since 1970), such as "2026-W27". */
export function label(unit: string, at: number): string {
  checkUnit(unit);
  if (!unit) return ONCE;
  if (!(at >= FIRST && at < LAST))
    throw new InvalidInput("a moment must lie in the years 1000 to 9999");
  const iso = new Date(at).toISOString();
  switch (unit) {
    case "PT1H":
      return iso.slice(0, 13);
    case "P1D":
      return iso.slice(0, 10);
    case "P1M":
      return iso.slice(0, 7);
    case "P1Y":
      return iso.slice(0, 4);
    default: {
      // ISO 8601: a week belongs to the year of its Thursday.
      const monday = mondayOf(at);
      const year = new Date(monday + 3 * DAY).getUTCFullYear();
      const week = 1 + (monday - mondayOf(Date.UTC(year, 0, 4))) / (7 * DAY);
      return `${year}-W${String(week).padStart(2, "0")}`;
    }
  }
}

/** Return when the Monday of a moment's week begins. */
function mondayOf(at: number): number {
  const day = Math.floor(at / DAY);
  return (day - ((((day + 3) % 7) + 7) % 7)) * DAY; // 1 January 1970 was a Thursday
}

/** Return when the period `name` of `unit` begins (ms since 1970); throw `InvalidInput` if it is none. */
export function start(unit: string, name: string): number {
  checkUnit(unit);
  if (!unit) {
    if (name !== ONCE)
      throw new InvalidInput(
        `the survey has the one period "${ONCE}", got ${JSON.stringify(name)}`,
      );
    return -Infinity;
  }
  const [year = NaN, second = 1, day = 1, hour = 0] = (FORMS[unit]!.exec(name) ?? [])
    .slice(1)
    .map(Number);
  const begin =
    unit === "P1W"
      ? mondayOf(Date.UTC(year, 0, 4)) + (second - 1) * 7 * DAY
      : Date.UTC(year, second - 1, day, hour);
  if (!(begin >= FIRST && begin < LAST) || label(unit, begin) !== name) {
    const example = label(unit, Date.UTC(2026, 6, 4, 13));
    throw new InvalidInput(`a ${unit} period reads like "${example}", got ${JSON.stringify(name)}`);
  }
  return begin;
}

/**
 * Return when the period `name` of `unit` ends (ms since 1970): the first moment that is not in it.
 *
 * The one period of a survey without a unit, and one at the end of time, end at Infinity. Throws
 * `InvalidInput` if `name` is none.
 */
export function end(unit: string, name: string): number {
  const begin = start(unit, name);
  if (!unit) return Infinity;
  const next = begin + LONGEST[unit]!; // a moment of the next period
  return next < LAST ? start(unit, label(unit, next)) : Infinity;
}
