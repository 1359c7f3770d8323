/** What is public of devices: the properties that an app gives in the clear, and panels. */

import { InvalidInput } from "../errors.js";
import { checkNames } from "./kinds/index.js";
import type { WireSurvey } from "./protobuf.js";

const MOST_PROPERTIES = 8;
const MOST_VALUES = 64;
const MOST_PANELS = 64;

/** The most combinations of a panel and values: what is in the clear links a person's reports. */
const MOST_TOLD = 2 ** 12;

/** Names that stand for something else where reports are selected and grouped. */
const TAKEN = ["level", "map", "panel", "period"];

/**
 * Return the values of each property of a survey, by name, in its order.
 *
 * Throws `InvalidInput`, naming the place, where properties or panels are not valid.
 */
export function readProperties(survey: WireSurvey): Map<string, readonly string[]> {
  const { panels, properties, period } = survey;
  if (properties.length > MOST_PROPERTIES) {
    throw new InvalidInput(
      `a survey has at most ${MOST_PROPERTIES} properties, got ${properties.length}`,
    );
  }
  const names = new Set([...TAKEN, ...survey.attributes.map(({ name }) => name)]);
  const found = new Map<string, readonly string[]>();
  let told = panels || 1;
  for (const [i, { name, values }] of properties.entries()) {
    const place = `properties[${i}]`;
    if (!/^[a-z][a-z0-9_]{0,63}$/.test(name)) {
      throw new InvalidInput(
        `${place}: the name of a property is a lower-case letter, then letters, digits or "_", ` +
          `at most 64 in all, got ${JSON.stringify(name)}`,
      );
    }
    if (names.has(name))
      throw new InvalidInput(`${place}: the name ${JSON.stringify(name)} is taken`);
    if (values.length > MOST_VALUES)
      throw new InvalidInput(`${place} may have ${MOST_VALUES} values, got ${values.length}`);
    checkNames(`${place}: values`, values, 1);
    names.add(name);
    found.set(name, values);
    told *= values.length + 1;
  }
  if (panels && (!period || panels < 2 || panels > MOST_PANELS)) {
    throw new InvalidInput(
      `panels must be 2 to ${MOST_PANELS}, in a survey with a period, or left out, got ${panels}`,
    );
  }
  if (told > MOST_TOLD) {
    throw new InvalidInput(
      `panels and properties have ${told} combinations, and may have ${MOST_TOLD}: what is sent in ` +
        "the clear links a person's reports",
    );
  }
  return found;
}
