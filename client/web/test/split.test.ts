/** Records are split between two servers as protos/conformance/split.json says. */

import { readFileSync } from "node:fs";
import { AEAD_AES_128_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from "hpke";
import { describe, expect, test } from "vitest";
import type { Coins } from "../src/coins.js";
import { fraction } from "../src/core/exact.js";
import type { Encoded } from "../src/plans/kinds/kind.js";
import { type Plan, parsePlan } from "../src/plans/plan.js";
import { OVERHEAD_BYTES } from "../src/sealed/hpke.js";
import { checkServers, infoOf, sealShares } from "../src/sealed/shares.js";
import { cellsOf } from "../src/split/cells.js";
import { split } from "../src/split/shares.js";
import { Skellam } from "../src/split/skellam.js";
import { CountedCoins, LiteralCoins, ScriptedCoins } from "./scripted.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- the vectors are JSON of many forms
type Case = any;

const vectors: Case = JSON.parse(
  readFileSync(new URL("../../../protos/conformance/split.json", import.meta.url), "utf8"),
);
const unhex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"));
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

const SEED_BYTES = 32;

function coinsOf({ seed, stream }: Case): CountedCoins {
  const coins: Coins = stream ? new LiteralCoins(unhex(stream)) : new ScriptedCoins(unhex(seed));
  return new CountedCoins(coins);
}

describe("noise", () => {
  test("is drawn as the vectors say, and of the same bytes", () => {
    for (const each of vectors.noise) {
      const coins = coinsOf(each);
      const variance = fraction(BigInt(each.variance[0]), BigInt(each.variance[1]));
      expect(new Skellam(variance).draws(each.values.length, coins)).toEqual(each.values);
      expect(coins.used).toBe(each.used);
    }
  });
});

describe("plans", () => {
  for (const each of vectors.plans) {
    test(each.note, async () => {
      const parsed = parsePlan(unhex(each.plan));
      if (!each.accepted) return expect(parsed).rejects.toThrow();
      const { recorded, twoServers } = await parsed;
      expect([...recorded.keys()]).toEqual(each.recorded);
      expect(twoServers!.cells).toBe(each.cells);
    });
  }
});

const suite = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_128_GCM);

/** Return a server's share, as it opens it; "" where it cannot. */
async function opened(sealed: Uint8Array, key: string, info: Uint8Array): Promise<string> {
  const own = await suite.DeserializePrivateKey(unhex(key), true);
  try {
    return hex(await suite.Open(own, sealed.slice(0, 32), sealed.slice(32), { info }));
  } catch {
    return "";
  }
}

function valuesOf(shown: Record<string, string | number | null>): Map<string, Encoded | undefined> {
  return new Map(
    Object.entries(shown).map(([name, value]) => [
      name,
      typeof value === "string" ? Buffer.from(value, "hex").readDoubleBE() : (value ?? undefined),
    ]),
  );
}

/** The plans of records: few, with the tables of their noise. */
const plans = new Map<string, Promise<Plan>>();

function planOf({ plan }: Case): Promise<Plan> {
  if (!plans.has(plan)) plans.set(plan, parsePlan(unhex(plan)));
  return plans.get(plan)!;
}

describe("records", () => {
  test("become the same cells and shares as in Python, from the same bytes", async () => {
    for (const each of vectors.records) {
      const { twoServers } = await planOf(each);
      const coins = coinsOf(each);
      const cells = cellsOf(twoServers!, valuesOf(each.values), coins);
      expect(cells).toEqual(each.cells);
      const { seed, rest } = await split(cells, twoServers!.bits, coins);
      expect([hex(seed), hex(rest)]).toEqual([each.share_a, each.share_b]);
      expect(coins.used).toBe(each.used);
    }
  });

  test("are sealed to their servers, bound to period and id", async () => {
    for (const each of vectors.records) {
      const plan = await planOf(each);
      await checkServers(plan);
      const [id, period, code] = [unhex(each.id), each.period, unhex(each.code)];
      const mine = await sealShares(plan, period, id, {
        seed: unhex(each.share_a),
        rest: unhex(each.share_b),
      });
      expect(mine.length).toBe(code.length);
      const size = SEED_BYTES + OVERHEAD_BYTES;
      for (const made of [mine, code]) {
        for (const [role, sealed, share] of [
          ["leader", made.slice(0, size), each.share_a],
          ["helper", made.slice(size), each.share_b],
        ] as const) {
          const info = infoOf(role, plan, period, id);
          expect(hex(info)).toBe(each.infos[role]);
          expect(await opened(sealed, each.privates[role], info)).toBe(share);
          const other = role === "leader" ? "helper" : "leader";
          expect(await opened(sealed, each.privates[other], info)).toBe("");
          const later = infoOf(role, plan, `${period}x`, id);
          expect(await opened(sealed, each.privates[role], later)).toBe("");
        }
      }
    }
  });

  test("a plan without the leader's key seals nothing", async () => {
    const { plan } = vectors.plans.find((each: Case) => each.note.startsWith("no leader's key"));
    await expect(checkServers(await parsePlan(unhex(plan)))).rejects.toThrow("not registered");
  });
});
