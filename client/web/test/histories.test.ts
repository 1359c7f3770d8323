import "fake-indexeddb/auto";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { type Batch, type Caps, Client, IndexedDbStore, type Person } from "../src/index.js";
import type { Device } from "../src/person.js";
import { parsePlan } from "../src/plans/plan.js";
import { Collector, refuse, revisionOf } from "./kit.js";

// The client does what the histories of protos/conformance say, on a ledger in IndexedDB.

beforeEach(() => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  vi.spyOn(console, "error").mockImplementation(() => {});
});

afterEach(() => {
  vi.restoreAllMocks();
});

interface Options {
  level?: string;
  epsilon?: string;
  revision?: number;
  withhold?: string[];
  may_tell_changes?: string[];
  maps?: Record<string, string>;
  properties?: Record<string, string>;
  panels?: number;
  may_reveal?: Record<string, string[] | Record<string, string[]>>;
  max_reports?: number;
  caps?: {
    life?: string;
    until?: string;
    attribute?: Record<string, string>;
    attribute_life?: Record<string, string>;
  };
}

type Event = { do: string } & Record<string, any>;

interface History {
  note: string;
  survey: string;
  start: number;
  vouched: boolean;
  options: Options;
  events: Event[];
}

const FILE = new URL("../../../protos/conformance/histories.json", import.meta.url);
const CONTENT: { plans: string[]; histories: History[] } = JSON.parse(readFileSync(FILE, "utf8"));
const PLANS = CONTENT.plans.map((plan) => new Uint8Array(Buffer.from(plan, "hex")));
const REVISIONS = PLANS.map(revisionOf);
const STATUSES: Record<string, number> = { stored: 1, duplicate: 2, refused: 3, retry: 4 };

const double = (text: string): number => Buffer.from(text, "hex").readDoubleBE();
const doubles = (map: Record<string, string> = {}): Record<string, number> =>
  Object.fromEntries(Object.entries(map).map(([name, text]) => [name, double(text)]));
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

let made = 0;

/** A client on a ledger, to which a history happens. */
class Life {
  client!: Client;
  readonly #offered = new Map<string, string>();
  /** The person's panel, by the number of panels. */
  readonly #panels = new Map<number, number>();
  #store: IndexedDbStore;
  #options: Options;
  #vouched: boolean;
  #time: number;
  #answer = "";
  #paused = -Infinity;

  constructor(
    private readonly history: History,
    private readonly server: Collector,
  ) {
    this.#options = { level: "strict", ...history.options };
    this.#store = new IndexedDbStore(`history ${made++}`);
    this.#vouched = history.vouched;
    this.#time = history.start;
    server.plan = undefined;
    server.serverTime = 0;
    server.answers = ({ method }, response) => {
      if (method === "GetPlan" && !server.plan) refuse(response, 503, "unavailable", "not reached");
      else if (method !== "GetPlan" && !this.#answer) {
        // One that was ended by the pause may still come.
        if (performance.now() > this.#paused + 500)
          throw new Error("a call while nothing may be sent");
        response.destroy();
      } else if (method === "Submit" && this.#answer === "unreachable") response.destroy();
      else {
        if (method === "Submit") server.statuses.push(STATUSES[this.#answer]!);
        return false;
      }
      return true;
    };
    this.#begin();
  }

  get #device(): Device {
    return (this.client as unknown as { device: Device }).device;
  }

  #begin(): void {
    const {
      level,
      epsilon,
      revision,
      withhold,
      may_tell_changes,
      maps,
      may_reveal,
      properties,
      panels,
      max_reports,
      caps = {},
    } = this.#options;
    const limits: Caps = {
      ...(caps.life !== undefined && { life: double(caps.life) }),
      ...(caps.until !== undefined && { until: caps.until }),
      attribute: doubles(caps.attribute),
      attributeLife: doubles(caps.attribute_life),
    };
    const vouched = this.#vouched;
    this.client = new Client({
      url: this.server.url,
      survey: this.history.survey,
      store: this.#store,
      level,
      epsilon: epsilon ? double(epsilon) : 64,
      caps: limits,
      withhold: withhold ?? [],
      mayTellChanges: may_tell_changes ?? [],
      maps: maps ?? {},
      properties: properties ?? {},
      panels: panels ?? 0,
      mayReveal: may_reveal ?? {},
      ...(revision !== undefined && { revision: REVISIONS[revision]! }),
      vouched: () => vouched,
      clock: () => this.#time,
      delivery: {
        batchAge: 1e15,
        firstWait: 5,
        longestWait: 10,
        maxReports: max_reports ?? 10_000,
      },
    });
    this.#device.sender.pause();
  }

  #person(name: string): Person {
    return name ? this.client.person(name) : this.client;
  }

  async happens(event: Event): Promise<void> {
    switch (event.do) {
      case "grant":
        return this.#person(event.person).grant();
      case "revoke":
        return this.#person(event.person).revoke({ forget: event.forget });
      case "clock":
        this.#time = event.time;
        return;
      case "fetch":
        this.server.plan = PLANS[event.plan];
        this.server.serverTime = (event.server_time ?? 0) / 1000;
        await this.#device.keeper.fetch(1000);
        this.server.serverTime = 0;
        return;
      case "record":
        return this.#record(event);
      case "restart":
        await this.client.close(0);
        this.#options = { ...this.#options, ...event.options };
        return this.#begin();
      case "lose":
        await this.client.close(0);
        this.#store = new IndexedDbStore(`history ${made++}`);
        this.#vouched = false;
        return this.#begin();
      case "send":
        return this.#send(event);
      case "forgets":
        expect(new Set(this.server.forgotten).size).toBe(event.ids);
        for (const id of this.server.forgotten) expect([...this.#offered.keys()]).toContain(id);
        return;
      case "spent": {
        const spendings = await this.client.spendings();
        const { reports, life } = spendings.find(({ attribute }) => attribute === event.attribute)!;
        expect([reports, life]).toEqual([event.reports, double(event.life)]);
        return;
      }
      default:
        throw new Error(`unknown event ${event.do}`);
    }
  }

  async #record(event: Event): Promise<void> {
    const { taken, dropped, invalid } = await this.#person(event.person).record(event.answers);
    if (event.counts) {
      const counts: Record<string, number> = taken.length ? { taken: taken.length } : {};
      for (const reason of Object.values(dropped)) counts[reason] = (counts[reason] ?? 0) + 1;
      expect(counts).toEqual(event.counts);
      return;
    }
    expect({ taken: [...taken].sort(), dropped, invalid: [...invalid].sort() }).toEqual({
      taken: event.taken,
      dropped: event.dropped,
      invalid: event.invalid,
    });
  }

  async #send(event: Event): Promise<void> {
    this.#answer = event.answer;
    const before = this.server.batches.length;
    this.#device.sender.resume();
    const ends = !["unreachable", "retry"].includes(event.answer);
    expect(await this.client.flush(ends ? 10_000 : 200)).toBe(!event.left);
    this.#device.sender.pause();
    this.#paused = performance.now();
    this.#answer = "";
    const now = new Map<string, { batch: Batch; again: boolean }>();
    for (const { batch, bytes } of this.server.batches.slice(before)) {
      const id = hex(batch.id);
      const known = this.#offered.get(id);
      if (!now.has(id)) now.set(id, { batch, again: known !== undefined });
      expect(bytes.toString("hex")).toBe(known ?? bytes.toString("hex"));
      this.#offered.set(id, bytes.toString("hex"));
    }
    for (const { batch } of now.values()) {
      const { panels } = await parsePlan(PLANS[REVISIONS.indexOf(hex(batch.revision))]!);
      const panel = this.#panels.get(panels) ?? batch.panel;
      this.#panels.set(panels, panel);
      expect([batch.panel, panels ? panel > 0 && panel <= panels : !panel]).toEqual([panel, true]);
    }
    const inOrder = (all: unknown[]): unknown[] => all.map((each) => JSON.stringify(each)).sort();
    expect(inOrder([...now.values()].map(({ batch, again }) => shown(batch, again)))).toEqual(
      inOrder(event.offered.map((each: any) => shownAs(each))),
    );
    const { reports, batches } = await this.client.outbox();
    expect(reports.length + batches.reduce((rows, batch) => rows + batch.rows, 0)).toBe(event.left);
    for (const pair of event.alike ?? []) {
      const periods = pair.map((index: number) => event.offered[index].period);
      const alike = [...now.values()].filter(({ batch }) => periods.includes(batch.period));
      expect(new Set(alike.map(({ batch }) => hex(batch.columns[0]!.codes))).size).toBe(1);
    }
  }
}

function shown(batch: Batch, again: boolean): unknown {
  const present = (bits: Uint8Array): number => bits.reduce((sum, byte) => sum + ones(byte), 0);
  return shownAs({
    plan: REVISIONS.indexOf(hex(batch.revision)),
    period: batch.period,
    rows: batch.rows,
    columns: batch.columns.map((c) => [
      c.attribute,
      c.level,
      c.present.length ? present(c.present) : batch.rows,
      ...(c.map ? [c.map] : []),
    ]),
    again,
    ...(batch.panel && { panel: true }),
    ...(batch.properties.length && { properties: batch.properties }),
  });
}

const ones = (byte: number): number => byte.toString(2).replaceAll("0", "").length;

function shownAs({ plan, period, rows, columns, again, panel, properties }: any): unknown {
  return [plan, period, rows, columns, again, panel ?? false, properties ?? []];
}

test.each(CONTENT.histories.map((history) => [history.note, history] as const))(
  "%s",
  async (_, history) => {
    const life = new Life(history, await Collector.start());
    onTestFinished(async () => {
      await life.client.close(0);
    });
    for (const [number, event] of history.events.entries()) {
      try {
        await life.happens(event);
      } catch (error) {
        (error as Error).message +=
          `\nevent ${number}: ${JSON.stringify(event)}; ${JSON.stringify(await life.client.status())}`;
        throw error;
      }
    }
  },
);
