/** Plans, a Collector whose answers a test chooses, and people, for tests of the client. */

import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { Client, type ClientOptions, MemoryStore } from "../src/index.js";
import {
  type Batch,
  decodeBatch,
  encodePlan,
  type WireAttribute,
  type WireLevel,
  type WireMechanism,
  type WireSealing,
} from "../src/plans/protobuf.js";

const ONE = 2n ** 64n;

export const DAY = 24 * 3600e3;

/** Noon of the first day of 2026, and the server's time in tests. */
export const NOON = Date.UTC(2026, 0, 1, 12);

/** Return the integer below which a coin keeps (a little less than) the probability. */
export function over64(probability: number): bigint {
  return BigInt(Math.floor(probability * 2 ** 53)) << 11n;
}

export function krr(k: number, epsilon: number): WireMechanism {
  const resample = (over64(k / (Math.exp(epsilon) - 1 + k)) / 1000n) * 1000n + (1n << 20n);
  return {
    name: "krr",
    epsilon,
    parameters: [
      { name: "k", values: [BigInt(k)] },
      { name: "resample", values: [resample] },
    ],
  };
}

/** Set selection that reports one member. */
export function setSelection(items: number, most: number, epsilon: number): WireMechanism {
  const odds = most * Math.exp(epsilon);
  const one = (name: string, value: bigint) => ({ name, values: [value] });
  return {
    name: "set_selection",
    epsilon,
    parameters: [
      one("include", over64(odds / (odds + items)) - (1n << 20n)),
      one("items", BigInt(items)),
      one("meet", 1n),
      one("most", BigInt(most)),
      one("size", 1n),
    ],
  };
}

/** One bit of a set. */
export function setBits(items: number, epsilon: number): WireMechanism {
  const flip = over64(1 / (1 + Math.exp(epsilon))) + (1n << 20n);
  return {
    name: "set_bits",
    epsilon,
    parameters: [
      { name: "flip", values: [flip] },
      { name: "items", values: [BigInt(items)] },
    ],
  };
}

/** Unary encoding of epsilon 1 in which the values that are not `sensitive` may be revealed. */
export function sensitiveUnary(sensitive: readonly boolean[]): WireMechanism {
  const unlimited = 2n ** 64n - 1n;
  const classes = sensitive.map((each) => (each ? 0n : 1n));
  const distances = [2n ** 58n, 2n ** 58n, unlimited, unlimited];
  return {
    name: "policy_unary",
    epsilon: 1,
    parameters: [
      { name: "k", values: [BigInt(sensitive.length)] },
      { name: "other", values: [over64(1 / (1 + Math.E)) + (1n << 20n), 0n] },
      { name: "own", values: [ONE / 2n, over64(0.3)] },
      { name: "policy", values: [2n, ...classes, ...distances] },
    ],
  };
}

export function onebit(epsilon: number): WireMechanism {
  const flip = over64(1 / (1 + Math.exp(epsilon))) + (1n << 20n);
  return { name: "onebit", epsilon, parameters: [{ name: "flip", values: [flip] }] };
}

/** Two rounds; a memo is given `permanent`, a report of it `instantaneous` as the chances of a fresh draw. */
export function chain(
  k: number,
  epsilon: number,
  permanent: number,
  instantaneous: number,
): WireMechanism {
  return {
    name: "krr_chain",
    epsilon,
    parameters: [
      { name: "instantaneous", values: [over64(instantaneous)] },
      { name: "k", values: [BigInt(k)] },
      { name: "permanent", values: [over64(permanent)] },
    ],
  };
}

export function categorical(
  name: string,
  values: string[],
  more: Partial<WireAttribute> = {},
): WireAttribute {
  return {
    name,
    title: "",
    categorical: { values, sensitive: [], classes: [], maps: [] },
    mechanism: "",
    memo: 0,
    ...more,
  };
}

export function numeric(name: string, low: number, high: number, clamp = false): WireAttribute {
  return {
    name,
    title: "",
    numeric: {
      low,
      high,
      clamp,
      step: 0,
      bins: 0,
      sensitive: [],
      resolution: [],
      cap: 0,
      edges: [],
    },
    mechanism: "",
    memo: 0,
  };
}

export interface Draft {
  readonly name?: string;
  readonly title?: string;
  readonly period?: string;
  readonly attributes?: WireAttribute[];
  readonly levels?: Record<string, number>;
  readonly defaultLevel?: string;
  readonly chances?: bigint[];
  readonly mechanisms?: (level: string, epsilon: number) => WireMechanism[];
  readonly views?: string[][];
  readonly panels?: number;
  readonly properties?: Record<string, string[]>;
  readonly sealing?: WireSealing;
  /** The mechanisms of maps, by level. */
  readonly mapped?: (level: string, epsilon: number) => WireMechanism[];
}

export const MOODS = ["bad", "so-so", "good"];

/** Return the bytes of a plan: by default a mood and a walk, once a day, at two levels. */
export function planOf(draft: Draft = {}): Uint8Array {
  const attributes = draft.attributes ?? [
    categorical("mood", MOODS),
    numeric("walked", 0, 20, true),
  ];
  const levels = Object.entries(draft.levels ?? { strict: 1, loose: 4 }).sort(
    ([, a], [, b]) => a - b,
  );
  const share = draft.chances?.length
    ? Number(draft.chances.reduce((a, b) => a + b) / ONE)
    : attributes.length;
  const mechanisms =
    draft.mechanisms ??
    ((_, epsilon) =>
      attributes.map((a) =>
        a.categorical ? krr(a.categorical.values.length, epsilon / share) : onebit(epsilon / share),
      ));
  return encodePlan({
    survey: {
      name: draft.name ?? "daily",
      title: draft.title ?? "",
      period: draft.period ?? "P1D",
      levels,
      attributes,
      budget: "",
      views: (draft.views ?? []).map((names) => ({ attributes: names })),
      default_level: draft.defaultLevel ?? levels[0]![0],
      panels: draft.panels ?? 0,
      properties: Object.entries(draft.properties ?? {}).map(([name, values]) => ({
        name,
        title: "",
        values,
      })),
      ...(draft.sealing && { sealing: draft.sealing }),
    },
    levels: levels.map(([name, epsilon]): WireLevel => ({
      name,
      epsilon,
      mechanisms: mechanisms(name, epsilon),
      chances: draft.chances ?? [],
      mapped: draft.mapped?.(name, epsilon) ?? [],
    })),
  });
}

export function revisionOf(plan: Uint8Array): string {
  return createHash("sha256").update(plan).digest("hex");
}

export interface Call {
  readonly method: string;
  readonly at: number;
  readonly body: Buffer;
  readonly headers: IncomingMessage["headers"];
}

type Answering = (call: Call, response: ServerResponse) => boolean | Promise<boolean>;

function varint(value: number | bigint): number[] {
  const out: number[] = [];
  let rest = BigInt(value);
  for (; rest > 127n; rest >>= 7n) out.push(Number(rest & 127n) | 128);
  return [...out, Number(rest)];
}

function field(number: number, bytes: Uint8Array | number[]): number[] {
  return [...varint((number << 3) | 2), ...varint(bytes.length), ...bytes];
}

/** A Collector on loopback that keeps what it is sent; `answers` decides, call by call, how it answers. */
export class Collector {
  readonly calls: Call[] = [];
  /** The statuses of the next results; STORED where there are none left. */
  readonly statuses: number[] = [];
  /** Take over an answer by returning true. */
  answers: Answering = () => false;
  serverTime = NOON / 1000;
  url = "";
  readonly #server = createServer((request, response) => void this.#answer(request, response));

  constructor(public plan: Uint8Array | undefined = planOf()) {}

  static async start(plan?: Uint8Array): Promise<Collector> {
    const collector = new Collector(plan);
    await collector.listen(0);
    onTestFinished(() => collector.stop());
    return collector;
  }

  listen(port: number): Promise<void> {
    return new Promise((resolve) =>
      this.#server.listen(port, "127.0.0.1", () => {
        this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
        resolve();
      }),
    );
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  of(method: string): Call[] {
    return this.calls.filter((call) => call.method === method);
  }

  /** The batches that came, each time that they came. */
  get batches(): { bytes: Buffer; batch: Batch; at: number }[] {
    return this.of("Submit").flatMap(({ body, at }) =>
      fields(body, 1).map((bytes) => ({ bytes, batch: decodeBatch(new Uint8Array(bytes)), at })),
    );
  }

  /** The sealed records that came, each time that they came. */
  get sealed(): string[] {
    return this.of("SubmitSealed").flatMap(({ body }) =>
      fields(body, 1).map((bytes) => bytes.toString("hex")),
    );
  }

  /** The ids that were to be forgotten. */
  get forgotten(): string[] {
    return this.of("Forget").flatMap(({ body }) => fields(body, 3).map((id) => id.toString("hex")));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const call: Call = {
      method: request.url!.split("/").at(-1)!,
      at: performance.now(),
      body: Buffer.concat(parts),
      headers: request.headers,
    };
    this.calls.push(call);
    if (await this.answers(call, response)) return;
    const time = [16, ...varint(Math.floor(this.serverTime))];
    if (call.method === "GetPlan") {
      if (!this.plan) return refuse(response, 404, "not_found", "there is no such survey");
      return reply(response, [...field(1, this.plan), ...time]);
    }
    if (call.method === "Forget") {
      return reply(response, [
        ...field(
          1,
          fields(call.body, 3).map(() => 1),
        ),
        ...time,
      ]);
    }
    const results = fields(call.body, 1).map(() =>
      field(1, [8, ...varint(this.statuses.shift() ?? 1)]),
    );
    reply(response, [...results.flat(), ...time]);
  }
}

export function reply(response: ServerResponse, message: number[]): void {
  response.writeHead(200, { "content-type": "application/proto" }).end(Buffer.from(message));
}

export function refuse(
  response: ServerResponse,
  status: number,
  code: string,
  message: string,
  headers: Record<string, string> = {},
): void {
  response
    .writeHead(status, { "content-type": "application/json", ...headers })
    .end(JSON.stringify({ code, message }));
}

/** Return the contents of a field of bytes in a message of such fields. */
function fields(message: Buffer, wanted: number): Buffer[] {
  const found: Buffer[] = [];
  for (let at = 0; at < message.length;) {
    const tag = message[at++]!;
    let size = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = message[at++]!;
      size |= (byte & 127) << shift;
      if (byte < 128) break;
    }
    if (tag >> 3 === wanted) found.push(message.subarray(at, at + size));
    at += size;
  }
  return found;
}

/** An address where nothing listens. */
export const NOWHERE = "http://127.0.0.1:50009";

/** A clock that a test sets. */
export class Clock {
  constructor(public now = NOON) {}
  readonly read = (): number => this.now;
}

/** Quick delivery, for tests. */
export const QUICK = { batchAge: 20, firstWait: 20, longestWait: 200, timeout: 2000 };

/** Make a client with a ledger in memory that consents, and close it when the test is over. */
export function clientOf(url: string, options: Partial<ClientOptions> = {}): Client {
  const base = { url, consent: true, store: new MemoryStore(), clock: () => NOON, delivery: QUICK };
  const agreed = options.agreement ? {} : { survey: "daily", epsilon: 8 };
  const client = new Client({ ...base, ...agreed, ...options });
  onTestFinished(async () => {
    await client.close(1);
  });
  return client;
}

/** Make a client and wait until it takes answers. */
export async function readyOf(url: string, options: Partial<ClientOptions> = {}): Promise<Client> {
  const client = clientOf(url, options);
  if (!(await client.waitReady(3000))) throw new Error(JSON.stringify(await client.status()));
  return client;
}

/** Wait until something is true. */
export async function until(what: () => boolean | Promise<boolean>, timeout = 5000): Promise<void> {
  const deadline = performance.now() + timeout;
  while (!(await what())) {
    if (performance.now() > deadline) throw new Error("it never came true");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
