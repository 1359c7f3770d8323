/** Records are sealed as protos/conformance/sealed.json says. */

import { readFileSync } from "node:fs";
import { AEAD_AES_128_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from "hpke";
import { describe, expect, test } from "vitest";
import { InvalidInput } from "../src/errors.js";
import { parsePlan } from "../src/plans/plan.js";
import { keyOf } from "../src/plans/sealing.js";
import { encrypted, OVERHEAD_BYTES } from "../src/sealed/hpke.js";
import { checkKeys, infoOf, padded, seal } from "../src/sealed/records.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- the vectors are JSON of many forms
type Case = any;

const vectors: Case = JSON.parse(
  readFileSync(new URL("../../../protos/conformance/sealed.json", import.meta.url), "utf8"),
);
const unhex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"));
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

const suite = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_128_GCM);

/** Open what was sealed, as the collector does; "" where it cannot be opened. */
async function opened(sealed: string, key: string, info: string, aad = ""): Promise<string> {
  const own = await suite.DeserializePrivateKey(unhex(key), true);
  const [enc, ciphertext] = [unhex(sealed.slice(0, 64)), unhex(sealed.slice(64))];
  try {
    const bound = { info: unhex(info), aad: unhex(aad) };
    return hex(await suite.Open(own, enc, ciphertext, bound));
  } catch {
    return "";
  }
}

describe("HPKE", () => {
  for (const each of vectors.hpke) {
    test(each.note, async () => {
      const { sealed, private: key, info, aad, message, public: own } = each;
      expect(await opened(sealed, key, info, aad)).toBe(message);
      const mine = hex(await encrypted(unhex(message), unhex(own), unhex(info)));
      expect(mine.length).toBe(message.length + 2 * OVERHEAD_BYTES);
      expect(await opened(mine, key, info)).toBe(message);
      expect(await opened(mine, key, `${info}00`)).toBe("");
    });
  }

  test("no key is sealed to with which everybody could decrypt", async () => {
    const nothing = new Uint8Array();
    for (const key of [new Uint8Array(32), new Uint8Array(31)])
      await expect(encrypted(nothing, key, nothing)).rejects.toThrow(InvalidInput);
  });
});

describe("plans", () => {
  for (const each of vectors.plans) {
    test(each.note, async () => {
      const parsed = parsePlan(unhex(each.plan));
      if (!each.accepted) return expect(parsed).rejects.toThrow(/sealing/);
      expect((await parsed).sealing!.size).toBe(each.size);
    });
  }

  test("a period has the last key whose turn came before it began", async () => {
    for (const each of vectors.periods) {
      const plan = await parsePlan(unhex(each.plan));
      for (const [period, place] of each.keys)
        expect(keyOf(plan.sealing!, plan.period, period)).toBe(place);
    }
  });
});

describe("records", () => {
  for (const each of vectors.records) {
    test(each.note, async () => {
      const plan = await parsePlan(unhex(each.plan));
      await checkKeys(plan);
      const content = unhex(each.content);
      expect(hex(padded(content, plan.sealing!.size))).toBe(each.padded);
      // The period is the part of `info` after the last zero byte.
      const period = Buffer.from(each.info, "hex").toString("latin1").split("\0").at(-1)!;
      expect(hex(infoOf(plan, period))).toBe(each.info);
      const batch =
        content[0] === 10 ? content.slice(content.length - lengthOf(content)) : undefined;
      if (!batch) return; // a request to forget
      const record = hex(await seal(plan, period, { batch }));
      const size = plan.sealing!.size + OVERHEAD_BYTES;
      expect(await opened(record.slice(-2 * size), each.private, each.info)).toBe(each.padded);
      expect(record.length).toBe(each.record.length);
      expect(record.slice(0, -2 * size)).toBe(each.record.slice(0, -2 * size));
    });
  }

  test("a record that does not fit is refused before it is sealed", () => {
    expect(padded(new Uint8Array(252), 256).length).toBe(256);
    expect(() => padded(new Uint8Array(253), 256)).toThrow(/253 bytes does not fit/);
  });
});

/** The length of the one field of a message, after its tag. */
function lengthOf(content: Uint8Array): number {
  let [length, shift, at] = [0, 0, 1];
  for (;;) {
    const byte = content[at++]!;
    length |= (byte & 127) << shift;
    if (byte < 128) return length;
    shift += 7;
  }
}
