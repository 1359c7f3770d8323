/**
 * Lives that make the same calls with other answers, and draw the same attributes: the same messages must
 * follow, of the same form, after the same calls. Only the channel depends on the answer.
 */

import "fake-indexeddb/auto";
import { expect } from "vitest";
import { type Coins, SystemCoins } from "../src/coins.js";
import { type Batch, type Client, IndexedDbStore, MemoryStore, type Store } from "../src/index.js";
import type { WireAttribute, WireMechanism } from "../src/plans/protobuf.js";
import {
  categorical,
  chain,
  clientOf,
  Clock,
  Collector,
  DAY,
  krr,
  MOODS,
  numeric,
  onebit,
  planOf,
  refuse,
} from "./kit.js";
import { ScriptedCoins } from "./scripted.js";

/** Answers outside every domain. */
export const OUTSIDE: unknown[] = [
  "nowhere",
  "",
  -1,
  1e30,
  Number.NaN,
  Infinity,
  true,
  10n ** 40n,
  Symbol("x"),
  () => "good",
  [],
  ["good"],
  { valueOf: () => 1 },
  new Date(Number.NaN),
  new String("good"),
  new Proxy(
    {},
    {
      get: () => {
        throw new Error("no");
      },
    },
  ),
  {
    toString: () => {
      throw new Error("no");
    },
    [Symbol.toPrimitive]: () => {
      throw new Error("no");
    },
  },
];

/** Integers that a seed gives: the same calls in both runs. */
function* integers(seed: number): Generator<number> {
  for (let state = seed + 1; ;) {
    state = (state * 48_271) % 2_147_483_647;
    yield state;
  }
}

export interface Play {
  readonly attributes: WireAttribute[];
  mechanism(attribute: WireAttribute, epsilon: number): WireMechanism;
  readonly memoised: boolean;
  readonly chances: bigint[];
  readonly lasts: boolean;
}

/** Coins that begin anew with every transaction, so that two runs draw the same attributes. */
class Reseeded implements Coins {
  #inner: Coins = new SystemCoins();

  begin(seed: number): void {
    this.#inner = new ScriptedCoins(new TextEncoder().encode(String(seed)));
  }

  bytes(count: number): Uint8Array {
    return this.#inner.bytes(count);
  }

  fill(target: Uint8Array): void {
    this.#inner.fill(target);
  }

  uint32(): number {
    return this.#inner.uint32();
  }
}

let made = 0;

/** Live some days by the calls that a seed gives; return what came, after which call, in which form. */
export async function live(seed: number, which: number, play: Play): Promise<unknown[]> {
  const draw = integers(seed);
  const next = (below: number): number => draw.next().value! % below;
  const fails = integers(seed + 1000);
  const plan = planOf({
    attributes: play.attributes,
    levels: { low: 4, high: 8 },
    chances: play.chances,
    mechanisms: (_, epsilon) =>
      play.attributes.map((attribute) => play.mechanism(attribute, epsilon / 4)),
  });
  const server = await Collector.start(plan);
  const clock = new Clock();
  const seen: unknown[] = [];
  let call = 0;
  const ids = new Set<string>();
  server.answers = ({ method, body }, response) => {
    if (method === "Forget") seen.push([call, method, body.length]);
    if (method !== "Submit") return false;
    const { batch } = server.batches.at(-1)!;
    const id = Buffer.from(batch.id).toString("hex");
    if (!ids.has(id)) seen.push([call, method, body.length, form(batch)]);
    ids.add(id);
    if (fails.next().value! % 3) return false;
    refuse(response, 503, "unavailable", "later", { "retry-after-ms": "1" });
    return true;
  };

  const coins = new Reseeded();
  const store: Store = play.lasts ? new IndexedDbStore(`coupled ${made++}`) : new MemoryStore();
  const run = store.run.bind(store);
  store.run = (work, durability) =>
    run(() => {
      if (durability !== "read") coins.begin(call);
      return work();
    }, durability);
  const make = (): Client =>
    clientOf(server.url, {
      clock: clock.read,
      store,
      coins,
      vouched: () => true,
      caps: { life: 30 },
      mayTellChanges: play.memoised ? play.attributes.map((attribute) => attribute.name) : [],
      // Only a flush sends, so that each message follows from a call.
      delivery: { batchAge: 1e9, firstWait: 5, longestWait: 10, timeout: 1000, maxReports: 9 },
    });
  let client = make();
  expect(await client.waitReady(3000)).toBe(true);
  for (; call < 40; call++) {
    const person = next(2) ? client : client.person("ann", { level: next(2) ? "low" : "high" });
    await person.grant();
    const answers: Record<string, unknown> = {};
    for (const [i, { name, categorical: domain }] of play.attributes.entries()) {
      const given = next(4);
      const value = next(1000);
      if (!given) continue; // left out, in both runs
      const inside = domain
        ? domain.values[(value + which * (i + 1)) % domain.values.length]
        : ((value + which * 7) % 21) - 0.5;
      const outside = OUTSIDE[(value + which) % OUTSIDE.length];
      answers[name] = (given === 1 && which) || given === 2 ? outside : inside;
    }
    const recorded = await person.record(answers);
    seen.push([call, recorded.taken, recorded.dropped]);
    const what = next(8);
    if (what === 0) {
      clock.now += DAY * (1 + next(2));
      server.serverTime = clock.now / 1000;
      await client.trustClock(); // or the moment at which the server is asked would decide
    }
    if (what === 1) seen.push([call, await client.flush(3000)]);
    if (what === 2 && !next(3)) {
      await person.revoke({ forget: true });
      await client.flush(3000);
    }
    if (what === 3 && play.lasts) {
      await client.flush(3000);
      await client.close(3000);
      client = make();
      expect(await client.waitReady(3000)).toBe(true);
    }
  }
  seen.push(await client.flush(3000));
  await client.close(10);
  return seen;
}

/** Return all that a batch tells without its codes: its rows are in random order. */
function form({ rows, period, columns }: Batch): unknown {
  const kinds = Array.from({ length: rows }, (_, row) =>
    columns
      .filter(({ present }) => !present.length || (present[row >> 3]! >> (row & 7)) & 1)
      .map(({ attribute, level }) => `${attribute} at ${level}`)
      .join(),
  );
  return [period, kinds.sort(), columns.map(({ codes }) => codes.length)];
}

const half = 2n ** 63n;
const moods = [categorical("mood", MOODS), categorical("place", ["home", "work", "way", "else"])];
const memoised = moods.map((attribute) => ({ ...attribute, memo: 2 }));
const fresh = (attribute: WireAttribute, epsilon: number): WireMechanism =>
  attribute.categorical ? krr(attribute.categorical.values.length, epsilon) : onebit(epsilon);
/** What is asked, by its name. */
export const PLAYS: [string, Play][] = [
  [
    "of fresh reports",
    {
      attributes: [moods[0]!, numeric("walked", 0, 20)],
      mechanism: fresh,
      memoised: false,
      chances: [],
      lasts: true,
    },
  ],
  [
    "that sample attributes",
    { attributes: moods, mechanism: fresh, memoised: false, chances: [half, half], lasts: false },
  ],
  [
    "with memos",
    {
      attributes: memoised,
      mechanism: ({ categorical: domain }, epsilon) =>
        chain(domain!.values.length, epsilon, 0.9, 0.9),
      memoised: true,
      chances: [],
      lasts: false,
    },
  ],
];
