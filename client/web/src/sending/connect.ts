/** Calls of the Collector service by the Connect protocol: one POST each, binary messages, fetch. */

import { InvalidInput } from "../errors.js";
import {
  decodeForgetResponse,
  decodeGetPlanResponse,
  decodeSubmitResponse,
  encodeForgetRequest,
  encodeGetPlanRequest,
  encodeSubmitRequest,
  type ForgetResponse,
  type PlanResponse,
  type SubmitResponse,
} from "../plans/protobuf.js";
import { nameOf } from "../storage/store.js";
import { after } from "../timers.js";
import { type Reason, Unreachable } from "../trouble.js";

/** The secret that proves to a server who calls; a function is asked at every call. */
export type Token = string | (() => string);

/** Return a token without the white space that a file or a variable may have around it; undefined where the rest
 * cannot be one. */
export function carried(token: unknown): string | undefined {
  const text = typeof token === "string" ? token.trim() : "";
  return /^[ -~]+$/.test(text) ? text : undefined;
}

/** Why no server can be sent a token. */
export const NO_TOKEN = "the token is not printable ASCII, or empty";

/** Bytes that calls under way may hold in all to outlive a page: browsers allow 64 KiB. */
export const KEPT_ALIVE = 60 << 10;

/** The largest answer that is read: a plan has 4 MiB at most, and a little comes with it. */
const LARGEST = 5 << 20;

/** Characters of a server's error message that are passed on. */
const TOLD = 300;

/** Whether this is a page, or one of its workers. */
const IN_BROWSER = typeof document !== "undefined" || "WorkerGlobalScope" in globalThis;

/** Codes of errors that the caller can mend. */
const OUR_FAULT = ["invalid_argument", "not_found", "already_exists", "failed_precondition"];

/** Codes of Node's errors that tell of an obstacle; a browser tells none. */
const OBSTACLES: readonly [RegExp, Reason, string][] = [
  [/ENOTFOUND|EAI_AGAIN/, "name_not_found", "the host name of {} does not resolve"],
  [/CERT|SIGNATURE|SSL|TLS|EPROTO|ALTNAME/, "tls", "no secure connection to {} could be made"],
  [/ECONNREFUSED/, "unreachable", "nothing listens at {}"],
];

/**
 * The Collector service of a server, or the Shuffler service of a shuffler, whose requests and answers have the same
 * form.
 *
 * Each call throws `Unreachable` where no answer comes within `timeout` milliseconds, and `InvalidInput`
 * where the server refuses the request.
 */
export class Transport {
  readonly #base: string;
  readonly #calls = new Set<AbortController>();
  /** Bytes under way in calls that outlive the page. */
  #alive = 0;

  /** `url` is that of the server, or the path under which a proxy has it. A shuffler takes sealed records in the
   * place of batches. */
  constructor(
    readonly url: URL,
    private readonly token: Token | undefined,
    private readonly service: "Collector" | "Shuffler" = "Collector",
  ) {
    this.#base = `${url.origin}${url.pathname.replace(/\/$/, "")}/hearsay.v1.${service}/`;
  }

  /** Return a survey's plan. */
  getPlan(survey: string, timeout: number): Promise<PlanResponse> {
    return this.#call("GetPlan", encodeGetPlanRequest(survey), decodeGetPlanResponse, timeout);
  }

  /** Submit batches, given their bytes; return one result for each. The call is begun before this
   * returns, and outlives the page where the batches are small enough. */
  async submit(batches: readonly Uint8Array[], timeout: number): Promise<SubmitResponse> {
    const answer = await this.#call(
      this.service === "Shuffler" ? "SubmitSealed" : "Submit",
      encodeSubmitRequest(batches),
      decodeSubmitResponse,
      timeout,
    );
    if (answer.results.length === batches.length) return answer;
    throw this.#malformed(`${batches.length} batches with ${answer.results.length} results`);
  }

  /** Ask the server to delete the batches with these ids, and never to take them. */
  forget(
    survey: string,
    period: string,
    ids: Uint8Array[],
    timeout: number,
  ): Promise<ForgetResponse> {
    return this.#call(
      "Forget",
      encodeForgetRequest({ survey, period, ids }),
      decodeForgetResponse,
      timeout,
    );
  }

  /** How many more bytes a call may have to outlive the page. */
  get room(): number {
    return KEPT_ALIVE - this.#alive;
  }

  /** End the calls under way, as if no answer had come. */
  interrupt(): void {
    for (const call of this.#calls) call.abort();
  }

  async #call<T>(
    method: string,
    body: Uint8Array,
    decode: (data: Uint8Array) => T,
    timeout: number,
  ): Promise<T> {
    const call = new AbortController();
    const alive = body.length <= this.room ? body.length : 0;
    let late = false;
    const timer = after(timeout, () => {
      late = true;
      call.abort();
    });
    // Waited for beside the answer: after a collection of garbage Node 20 may forget whose signal it was.
    const ended = new Promise<never>((_, reject) => {
      call.signal.addEventListener("abort", () => reject(new Error("ended")));
    });
    ended.catch(() => {});
    this.#calls.add(call);
    this.#alive += alive;
    try {
      const asked = fetch(this.#base + method, {
        method: "POST",
        headers: this.#headers(),
        body: body as Uint8Array<ArrayBuffer>,
        signal: call.signal,
        keepalive: alive > 0,
        credentials: "omit",
        cache: "no-store",
        redirect: "error",
        referrerPolicy: "no-referrer",
      });
      const response = await Promise.race([asked, ended]);
      const kind = response.headers.get("content-type")?.split(";", 1)[0]?.trim();
      const data = await this.#read(response, ended);
      if (response.status !== 200) throw this.#refused(response, kind, data);
      if (kind !== "application/proto")
        throw this.#malformed(`content of the type ${onOneLine(kind ?? "")}`);
      try {
        return decode(data);
      } catch {
        throw this.#malformed("bytes that are no message");
      }
    } catch (error) {
      if (error instanceof Unreachable || error instanceof InvalidInput) throw error;
      if (late) throw new Unreachable(`${this.#name} did not answer in time`);
      if (call.signal.aborted) throw new Unreachable(`the call to ${this.#name} was ended`);
      throw this.#obstacle(error);
    } finally {
      clearTimeout(timer);
      this.#calls.delete(call);
      this.#alive -= alive;
    }
  }

  #headers(): Record<string, string> {
    const headers: Record<string, string> = {
      "content-type": "application/proto",
      "connect-protocol-version": "1",
      "accept-language": "*", // and not the person's
      ...(!IN_BROWSER && { "user-agent": "hearsay" }), // which a browser does not let anybody set
    };
    if (this.token === undefined) return headers;
    let token: unknown;
    try {
      token = typeof this.token === "string" ? this.token : this.token();
    } catch (error) {
      // The app's own function; its words may have the token in them.
      throw new Unreachable(`no token could be had: ${nameOf(error)}`, "bad_token");
    }
    const text = carried(token);
    if (text === undefined) throw new Unreachable(NO_TOKEN, "bad_token");
    headers.authorization = `Bearer ${text}`;
    return headers;
  }

  /** Return an answer's bytes; throw `Unreachable` where they are too many. */
  async #read(response: Response, ended: Promise<never>): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    let size = 0;
    const reader = response.body?.getReader();
    try {
      for (;;) {
        const part = await Promise.race([reader?.read(), ended]);
        if (!part || part.done) break;
        size += part.value.length;
        if (size > LARGEST) throw this.#malformed(`more than ${LARGEST} bytes`);
        parts.push(part.value);
      }
    } catch (error) {
      reader?.cancel().catch(() => {});
      throw error;
    }
    const all = new Uint8Array(size);
    for (const part of parts.reverse()) all.set(part, (size -= part.length));
    return all;
  }

  /** Return the error for an answer that is no success. */
  #refused(response: Response, kind: string | undefined, data: Uint8Array): Error {
    let code = `HTTP ${response.status}`;
    let told = "";
    if (kind === "application/json") {
      try {
        const error = JSON.parse(new TextDecoder().decode(data));
        code = onOneLine(error.code);
        told = onOneLine(error.message);
      } catch {
        // the status has to do
      }
    }
    // Our servers forbid a call because of its token, and name it; a proxy has reasons of its own.
    const forbidden = code === "permission_denied" && told.includes("token");
    if (response.status === 401 || forbidden) {
      return new Unreachable(
        `${this.#name} does not accept the token, or asks for one: ${told} (${code})`,
        "bad_token",
      );
    }
    if (OUR_FAULT.includes(code)) return new InvalidInput(told);
    const asked = response.headers.get("retry-after-ms") ?? "";
    // No more digits than a sane delay has: the server is not trusted.
    const wait = /^\d{1,10}$/.test(asked) ? Math.min(Number(asked), 3600e3) : 0;
    const away = code === "unavailable" && !wait;
    return new Unreachable(
      `${this.#name} ${away ? "is not available" : "refuses for now"}: ${told} (${code})`,
      away ? "unreachable" : "server_refused",
      wait,
    );
  }

  #malformed(what: string): Unreachable {
    return new Unreachable(
      `${this.#name} answers with ${what}: is it Hearsay's?`,
      "server_refused",
    );
  }

  /** Return the error for a call without an answer. */
  #obstacle(error: unknown): Unreachable {
    const cause = (error as { cause?: { code?: unknown } } | null)?.cause;
    const code = String(cause?.code ?? "");
    for (const [pattern, reason, words] of OBSTACLES) {
      if (pattern.test(code)) return new Unreachable(words.replace("{}", this.#name), reason);
    }
    const more =
      typeof document === "undefined"
        ? code
        : "a browser does not say why: the address, its certificate, this page's origin (which the server must list), " +
          "or its content security policy";
    return new Unreachable(`${this.#name} cannot be reached${more && ` (${more})`}`);
  }

  get #name(): string {
    return `the server at ${this.url.host}`;
  }
}

/** Return words that have a server's for a log or a person: cut short, and on one line. */
export function onOneLine(words: unknown, most = TOLD): string {
  return String(words ?? "")
    .slice(0, most)
    .replace(/[\p{C}\p{Z}]/gu, " ");
}

/**
 * Return the URL of a server.
 *
 * Throws `InvalidInput` unless it is an absolute URL of https, or of http on loopback, or elsewhere where
 * `insecure`; without a user, query or fragment.
 */
export function serverUrl(text: unknown, insecure: boolean): URL {
  let url: URL | undefined;
  try {
    url = new URL(text as string);
  } catch {
    // refused below
  }
  if (
    typeof text !== "string" ||
    !url ||
    !/^https?:$/.test(url.protocol) ||
    url.username ||
    url.password
  ) {
    throw new InvalidInput('url must be the server\'s, such as "https://hearsay.example"');
  }
  if (url.search || url.hash)
    throw new InvalidInput("url must have neither a query nor a fragment");
  const isLoopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (url.protocol === "http:" && !isLoopback && !insecure) {
    throw new InvalidInput(
      `${url.origin} would be read and forged on the way: use https, or pass insecure: true`,
    );
  }
  return url;
}
