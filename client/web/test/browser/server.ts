/** A real `hearsay serve` process, and what it counted. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const VENV = join(ROOT, ".venv/bin/python");
export const PYTHON = process.env["TEST_PYTHON"] ?? (existsSync(VENV) ? VENV : undefined);

const PACKAGES = [ROOT, join(ROOT, "client/python"), join(ROOT, "server")].join(":");
const ENVIRONMENT = { ...process.env, PYTHONPATH: PACKAGES, OMP_NUM_THREADS: "1" };

/** An answer of `hearsay query --json`. */
export interface Estimate {
  readonly reports: number;
  readonly tables: {
    readonly rows: {
      readonly index: Readonly<Record<string, readonly string[]>>;
      readonly columns: Readonly<
        Record<"estimate" | "standard_error", { readonly values: readonly number[] }>
      >;
    };
  };
}

/** Return a port of loopback that nothing listens on. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as { port: number };
      probe.close(() => resolve(port));
    });
  });
}

/** A server on SQLite in a folder of its own, which can be killed and started again. */
export class Server {
  readonly #folder = mkdtempSync(join(tmpdir(), "hearsay-web-"));
  #process: ChildProcess | undefined;

  private constructor(
    readonly grpc: string,
    readonly url: string,
    readonly options: readonly string[],
  ) {}

  /** Start a server that these origins may call, with more options of `hearsay serve`. */
  static async start(origins: readonly string[], ...options: string[]): Promise<Server> {
    const [grpc, http] = [await freePort(), await freePort()];
    const server = new Server(`127.0.0.1:${grpc}`, `http://127.0.0.1:${http}`, [
      ...["--http", `127.0.0.1:${http}`],
      ...(origins.length ? ["--http-origins", origins.join(",")] : []),
      ...options,
    ]);
    await server.restart();
    return server;
  }

  /** Start the process, on the same ports and data as before. */
  async restart(): Promise<void> {
    const log = openSync(join(this.#folder, "log"), "a");
    const data = join(this.#folder, "data");
    const serve = ["serve", "--listen", this.grpc, "--data", data, ...this.options];
    const started = spawn(PYTHON!, ["-m", "hearsay_server", ...serve], {
      env: ENVIRONMENT,
      stdio: ["ignore", log, log],
    });
    this.#process = started;
    for (const deadline = Date.now() + 60_000; ;) {
      if (started.exitCode !== null || Date.now() > deadline) throw new Error(this.log());
      if (await answers(`${this.url}/readyz`)) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** End the process by a signal, and wait until it is gone. */
  async kill(how: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const running = this.#process;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    const gone = new Promise((resolve) => running.once("exit", resolve));
    running.kill(how);
    await gone;
  }

  /** End the process and delete its data. */
  async stop(): Promise<void> {
    await this.kill("SIGTERM");
    rmSync(this.#folder, { recursive: true, force: true });
  }

  log(): string {
    return readFileSync(join(this.#folder, "log"), "utf8");
  }

  /** Run the `hearsay` command; return what it prints. */
  command(...given: string[]): string {
    return execFileSync(PYTHON!, ["-m", "hearsay_server", ...given], {
      env: ENVIRONMENT,
      encoding: "utf8",
    });
  }

  /** Register a survey. */
  async create(survey: object): Promise<void> {
    await this.ask("Admin/CreateSurvey", { survey });
  }

  /** Return the TypeScript module that an app ships for a survey, given as TOML. */
  codegen(toml: string): string {
    const file = join(this.#folder, "survey.toml");
    writeFileSync(file, toml);
    return this.command("codegen", file, "--typescript");
  }

  /** Return an answer of one of the server's methods that answer once, as JSON. */
  async ask<T>(method: string, message: object): Promise<T> {
    const answer = await fetch(`${this.url}/hearsay.v1.${method}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(message),
    });
    if (!answer.ok) throw new Error(`${method}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as T;
  }

  /** Return how many rows of a survey the server has counted, each of them once. */
  async records(survey: string): Promise<number> {
    const shown = await this.ask<{ status: { records?: string } }>("Admin/ShowSurvey", { survey });
    return Number(shown.status.records ?? 0);
  }

  /** Return the estimates of an attribute, as an analyst sees them. */
  estimate(survey: string, attribute: string, level: string): Estimate {
    const asked = [attribute, "--level", level, "--target", this.grpc, "--json"];
    return JSON.parse(this.command("query", survey, ...asked)) as Estimate;
  }
}

async function answers(url: string): Promise<boolean> {
  try {
    return (await fetch(url)).ok;
  } catch {
    return false;
  }
}
