/** The characters that the texts of a plan may have: those that people can see. */

import { InvalidInput } from "../errors.js";

/**
 * Characters that show nothing, or nothing of their own: control, format, private use and surrogates,
 * separators of lines and paragraphs, spaces other than U+0020, the other code points of
 * Default_Ignorable_Code_Point (Unicode character database, DerivedCoreProperties.txt), the empty pattern
 * of Braille and the null notehead.
 */
const UNSEEN =
  /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\u{1d159}\u{e0000}-\u{e0fff}]|(?! )\p{Zs}/u;

/** Throw `InvalidInput` for text that another text can look exactly like. */
export function checkText(place: string, text: string): void {
  if (/^ | $| {2}/.test(text)) {
    throw new InvalidInput(
      `${place}: ${JSON.stringify(text)} has a space at its beginning or end, or two in a row`,
    );
  }
  if (/^[ -~]*$/.test(text)) return; // most texts, much sooner
  const unseen = UNSEEN.exec(text);
  if (unseen) {
    const code = unseen[0].codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
    throw new InvalidInput(
      `${place}: ${JSON.stringify(text)} contains U+${code}: expected characters that can be seen`,
    );
  }
  if (text.normalize("NFC") !== text) {
    throw new InvalidInput(`${place}: ${JSON.stringify(text)} is not in Unicode's normal form NFC`);
  }
}
