/** The app's own web server: pages with the SDK's bundle, and a relay that takes its time. */

import { createServer, type IncomingMessage, request, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = fileURLToPath(new URL(".", import.meta.url));

/** The page's script and the chunks that it imports dynamically, by path, as an app bundles them. */
async function bundled(): Promise<Map<string, string>> {
  const made = await build({
    entryPoints: [`${HERE}page.ts`],
    outdir: "/",
    write: false,
    bundle: true,
    splitting: true,
    format: "esm",
    target: "es2022",
    minify: true,
    absWorkingDir: HERE,
  });
  return new Map(made.outputFiles.map((file) => [file.path, file.text]));
}

const HTML = `<!doctype html><html lang="en"><meta charset="utf-8"><title>A test's page</title>
<link rel="icon" href="data:,"><script type="module" src="/page.js"></script></html>`;

/** A web server on a port of loopback. */
export class Site {
  /** The header `content-security-policy` of what it serves from now on. */
  policy: string | undefined;

  private constructor(
    readonly origin: string,
    readonly server: Server,
  ) {}

  /** Serve the page at every path, and at /blank one without scripts. */
  static async start(): Promise<Site> {
    const files = await bundled();
    const server = createServer((asked, answer) => {
      const path = asked.url ?? "/";
      const script = files.get(path);
      answer.setHeader("content-type", script === undefined ? "text/html" : "text/javascript");
      answer.setHeader("cache-control", "no-store");
      if (site.policy) answer.setHeader("content-security-policy", site.policy);
      answer.end(script ?? (path === "/blank" ? "<!doctype html><title>Blank</title>" : HTML));
    });
    const site = new Site(`http://127.0.0.1:${await listening(server)}`, server);
    return site;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** A relay in front of a server, which may delay what goes either way. */
export class Relay {
  /** How long each request, and each answer, is held back, in milliseconds. */
  delay: (isAnswer: boolean) => number = () => 0;
  /** Called when a call of `Submit` has come, which the server gets even if the caller leaves. */
  onSubmit: () => void = () => undefined;
  submits = 0;
  private constructor(
    readonly url: string,
    readonly server: Server,
  ) {}

  static async start(target: string): Promise<Relay> {
    const server = createServer((asked, answer) => {
      const parts: Buffer[] = [];
      asked.on("error", () => {});
      asked.on("data", (part: Buffer) => parts.push(part));
      asked.on("end", async () => {
        if (asked.method === "POST" && asked.url?.endsWith("/Submit")) {
          relay.submits++;
          relay.onSubmit();
        }
        await pause(relay.delay(false));
        const { hostname, port } = new URL(target);
        const headers = { ...asked.headers, host: `${hostname}:${port}` };
        const options = { hostname, port, method: asked.method, path: asked.url, headers };
        const passed = request(options, (came: IncomingMessage) => {
          const body: Buffer[] = [];
          came.on("data", (part: Buffer) => body.push(part));
          came.on("end", async () => {
            await pause(relay.delay(true));
            answer.writeHead(came.statusCode ?? 502, came.headers);
            answer.end(Buffer.concat(body));
          });
        });
        passed.on("error", () => answer.destroy());
        passed.end(Buffer.concat(parts));
      });
    });
    const relay = new Relay(`http://127.0.0.1:${await listening(server)}`, server);
    return relay;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** Serve TLS with a certificate, and count the requests that come through it. */
export async function overTls(
  certificate: string,
  key: string,
): Promise<{ url: string; requests: () => number; stop: () => void }> {
  let requests = 0;
  const server = createTlsServer({ cert: certificate, key }, (_, answer) => {
    requests++;
    answer.end();
  });
  const port = await listening(server as unknown as Server);
  return {
    url: `https://127.0.0.1:${port}`,
    requests: () => requests,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

export const pause = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

function listening(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port));
  });
}
