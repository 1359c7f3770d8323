/** The characters that the texts of a plan may have: those that people can see. */

import { InvalidInput } from "../errors.js";

/** A text that an operator writes, after its place in the survey. */
export type Text = readonly [place: string, text: string, kind: "name" | "words"];

/** What shows nothing itself, but changes what is beside it: U+200C, U+200D and U+FE0F. */
export const JOINERS = /[\u200c\u200d\ufe0f]/g;

/** More combining marks in a row than any word has (Unicode's Stream-Safe Text Format, UAX #15): the time to normalise
 * them grows with their square. */
export const HEAP = /\p{M}{31}/u;

/** Return a text in Unicode's normal form NFC; as it is where it has more than 30 combining marks in a row, which no
 * plan has. */
export function normal(text: string): string {
  return HEAP.test(text) ? text : text.normalize("NFC");
}

/** Throw `InvalidInput` for texts that other texts can look exactly like. */
export async function checkTexts(texts: Iterable<Text>): Promise<void> {
  const others: Text[] = [];
  for (const each of texts) {
    const [place, text] = each;
    if (/^ | $| {2}/.test(text)) {
      throw new InvalidInput(
        `${place}: ${JSON.stringify(text)} has a space at its beginning or end, or two in a row`,
      );
    }
    if (!/^[ -~]*$/.test(text)) others.push(each);
  }
  if (!others.length) return;
  const { checkSeen } = await import("./joiners.js"); // it has a table of Unicode
  for (const [place, text, kind] of others) checkSeen(place, text, kind);
}
