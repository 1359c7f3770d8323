/** Views: attributes that are asked together, as one question about their combinations. */

import { at, InvalidInput } from "../errors.js";
import { Categorical, Grid, type Kind } from "./kinds/index.js";

/** The most combinations of values of one view, and of all views together. */
const MOST_COMBINATIONS = 2 ** 12;
const MOST_TOGETHER = 2 ** 16;

/** What a view needs to know of its attributes. */
interface Part {
  readonly domain: Kind;
  readonly memo: number;
}

/** Attributes that are asked as one question; its categories are their values' combinations, the last
 * attribute's changing first. */
export interface View {
  /** The attributes' names with "+" between them. */
  readonly name: string;
  readonly attributes: readonly string[];
  readonly domain: Categorical | Grid;
}

/**
 * Return a survey's views by name.
 *
 * Throws `InvalidInput`, naming the view, for fewer than two attributes, one that the survey lacks or that is
 * there twice, one without values, with maps or with a memo, for two views of the same attributes, a name that
 * is taken, and too many combinations.
 */
export function readViews(
  wire: readonly (readonly string[])[],
  attributes: ReadonlyMap<string, Part>,
): Map<string, View> {
  const found = new Map<string, View>();
  const known = new Set<string>();
  let together = 0;
  for (const [position, names] of wire.entries()) {
    const check = (holds: boolean, reason: string): void => {
      if (!holds) throw new InvalidInput(`views[${position}]: ${reason}`);
    };
    check(names.length >= 2, "a view is of two attributes at least");
    check(new Set(names).size === names.length, "a view has each attribute once");
    const domains = names.map((name) => {
      const shown = JSON.stringify(name);
      const { domain, memo } = attributes.get(name) ?? {};
      check(domain !== undefined, `${shown} is no attribute`);
      check(domain!.size > 0, `${shown} has neither a list of values nor bins`);
      check(!memo, `${shown} has a memo, and a view has none`);
      check(!domain!.maps.size, `${shown} has maps, and a view has none`);
      return domain!;
    });
    const combinations = domains.reduce((product, { size }) => product * size, 1);
    check(
      combinations <= MOST_COMBINATIONS,
      `a view has at most ${MOST_COMBINATIONS} combinations of values, got ${combinations}`,
    );
    together += combinations;
    check(
      together <= MOST_TOGETHER,
      `views have at most ${MOST_TOGETHER} combinations of values together`,
    );
    const members = JSON.stringify([...names].sort());
    const name = names.join("+");
    check(!known.has(members), "another view has the same attributes");
    check(!found.has(name) && !attributes.has(name), `the name ${JSON.stringify(name)} is taken`);
    known.add(members);
    const domain = at(`views[${position}]`, () => combined(domains));
    found.set(name, { name, attributes: names, domain });
  }
  return found;
}

/**
 * Return the domain of the combinations of several domains' values; of two numbers in bins their grid.
 *
 * Otherwise bins are values, all protected alike.
 * A combination may be revealed only if each of its values may be, and has the smallest scale of its values'
 * classes: a value is protected in every combination as its own domain declares, or better.
 */
function combined(given: readonly Kind[]): Categorical | Grid {
  const [rows, columns] = given.flatMap(({ sides }) => sides);
  if (given.length === 2 && rows && columns) return new Grid(rows, columns);
  const domains = given.map((domain) => domain.listed()!);
  // Each combination as the values in it. Its label is for nobody to read, and differs from all others.
  let combinations: string[][] = [[]];
  for (const { values } of domains) {
    combinations = combinations.flatMap((row) => values.map((value) => [...row, value]));
  }
  const labelled = combinations.map((row) => [JSON.stringify(row), row] as const);
  const labels = labelled.map(([label]) => label);
  if (domains.every(({ sensitive }) => sensitive.length)) {
    const ordinary = domains.map((domain) => new Set(domain.ordinary));
    const isSensitive = (row: string[]): boolean =>
      row.some((value, i) => !ordinary[i]!.has(value));
    const sensitive = labelled.filter(([, row]) => isSensitive(row)).map(([label]) => label);
    return new Categorical(labels, sensitive);
  }
  const scales = domains.map(
    ({ classes }) =>
      new Map(classes.flatMap(({ values, scale }) => values.map((value) => [value, scale]))),
  );
  const byScale = new Map<number, string[]>();
  for (const [label, row] of labelled) {
    const scale = Math.min(...row.map((value, i) => scales[i]!.get(value) ?? 1));
    if (scale < 1) byScale.set(scale, [...(byScale.get(scale) ?? []), label]);
  }
  const classes = [...byScale].map(([scale, values]) => ({ values, scale }));
  return new Categorical(labels, [], classes);
}
