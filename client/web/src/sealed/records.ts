/** Seal a record to the collector: HPKE around a padding of one size (docs/wire-sealed.md). */

import { InvalidInput } from "../errors.js";
import type { Plan } from "../plans/plan.js";
import { encodeSealed, encodeSealedRecord, type SealedContent } from "../plans/protobuf.js";
import { keyOf, PREFIX_BYTES, type Sealing } from "../plans/sealing.js";
import { unhex } from "../recording/places.js";
import { encrypted } from "./hpke.js";

const utf8 = new TextEncoder();
const LABEL = "hearsay/v1/sealed";

/** Return how a plan's records are sealed; throw `InvalidInput` where they are not. */
function sealingOf(plan: Plan): Sealing {
  if (plan.sealing) return plan.sealing;
  throw new InvalidInput(`the records of ${plan.survey} are not sealed: its plan says nothing`);
}

/** Throw `InvalidInput` unless records can be sealed to every key of a plan, of which there are some. */
export async function checkKeys(plan: Plan): Promise<void> {
  const { publics } = sealingOf(plan);
  if (!publics.length)
    throw new InvalidInput("this plan has no keys to seal with: its survey is not registered");
  const nothing = new Uint8Array();
  for (const key of publics) await encrypted(nothing, key, nothing);
}

/** Return what a sealed record is bound to: HPKE's `info`. */
export function infoOf(plan: Plan, period: string): Uint8Array {
  const parts = [
    utf8.encode(`${LABEL}\0${plan.survey}\0`),
    unhex(plan.revision),
    utf8.encode(`\0${period}`),
  ];
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

/** Return a message as `size` bytes: its length, itself, zeros; throw `InvalidInput` where it is longer. */
export function padded(message: Uint8Array, size: number): Uint8Array {
  if (message.length > size - PREFIX_BYTES) {
    throw new InvalidInput(
      `a record of ${message.length} bytes does not fit the survey's ${size} bytes of padding`,
    );
  }
  const all = new Uint8Array(size);
  new DataView(all.buffer).setUint32(0, message.length);
  all.set(message, PREFIX_BYTES);
  return all;
}

/**
 * Return what a device sends in a period as the bytes of a `SealedRecord`, to the key that the plan has for it.
 *
 * Guarantee: without the key's private half nobody tells one content from another of the same survey, revision and
 * period (RFC 9180, section 9.1): all have one size. Each call draws an ephemeral key.
 * Throws `InvalidInput` for a plan without keys, a period that is none, and a content that does not fit.
 */
export async function seal(
  plan: Plan,
  period: string,
  content: SealedContent,
): Promise<Uint8Array> {
  const sealing = sealingOf(plan);
  const key = keyOf(sealing, plan.period, period);
  const message = padded(encodeSealed(content), sealing.size);
  return encodeSealedRecord({
    survey: plan.survey,
    revision: unhex(plan.revision),
    period,
    key,
    sealed: await encrypted(message, sealing.publics[key]!, infoOf(plan, period)),
  });
}
