/** The code of docs/web.md and of README.md does what they say, as pasted. */

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server as HttpServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildSync } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { launch, MISSING } from "./chromium.js";
import { freePort, ROOT, Server } from "./server.js";

const WEB = join(ROOT, "client/web");

/** Return a document's blocks of code in a language. */
function blocks(path: string, language: string): string[] {
  const text = readFileSync(join(ROOT, path), "utf8");
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms"))].map(
    ([, code]) => code!,
  );
}

const [PAGE, MAPS, PREVIEW, VOUCHED, SPLIT, LATER, NODE] = blocks(
  "docs/web.md",
  "ts",
) as string[] as [string, string, string, string, string, string, string];
const [README] = blocks("client/web/README.md", "ts") as [string];
const [SURVEY] = blocks("docs/sdk.md", "toml") as [string];

describe.skipIf(MISSING)("the guide's code", () => {
  const folder = MISSING ? "" : mkdtempSync(join(tmpdir(), "hearsay-guide-"));
  let server: Server;
  let browser: Awaited<ReturnType<typeof launch>>;
  let site: HttpServer;
  let origin: string;
  /** The script that the site's page has. */
  let script = "";

  beforeAll(async () => {
    execFileSync(process.execPath, [join(WEB, "scripts/build.js")], { stdio: "inherit" });
    mkdirSync(join(folder, "node_modules"));
    mkdirSync(join(folder, "src"));
    symlinkSync(WEB, join(folder, "node_modules/hearsay-ldp"));
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
    const port = await freePort();
    origin = `http://127.0.0.1:${port}`;
    site = createServer((asked, answer) => {
      answer.setHeader("content-type", asked.url === "/page.js" ? "text/javascript" : "text/html");
      const page =
        '<!doctype html><link rel="icon" href="data:,"><script type="module" src="/page.js">';
      answer.end(asked.url === "/page.js" ? script : `${page}</script>`);
    });
    await new Promise<void>((resolve) => site.listen(port, "127.0.0.1", resolve));
    server = await Server.start([origin]);
    writeFileSync(join(folder, "daily.toml"), SURVEY);
    const survey = join(folder, "daily.toml");
    server.command("survey", "create", survey, "--target", server.grpc);
    server.command("codegen", survey, "--typescript", "--out", join(folder, "src/daily.ts"));
    browser = await launch();
  });

  afterAll(async () => {
    await browser?.close();
    site?.close();
    await server?.stop();
    if (folder) rmSync(folder, { recursive: true });
  });

  /** Run code as a page's script, and wait until the server has so many records; return what it logs first. */
  async function inPage(code: string, records: number): Promise<unknown[]> {
    writeFileSync(join(folder, "src/page.ts"), code);
    const made = buildSync({
      entryPoints: [join(folder, "src/page.ts")],
      bundle: true,
      format: "esm",
      write: false,
    });
    script = made.outputFiles[0]!.text;
    const context = await browser.newContext();
    try {
      const page = await context.newPage();
      const said = page.waitForEvent("console", (message) => message.type() === "log");
      await page.goto(origin);
      const values = (await said).args().map((each) => each.jsonValue());
      await expect.poll(() => server.records("daily"), { timeout: 20_000 }).toBe(records);
      return await Promise.all(values);
    } finally {
      await context.close();
    }
  }

  const reached = (code: string): string => code.replace(/http:\/\/127\.0\.0\.1:8080/, server.url);

  test.each([
    ["docs/web.md", PAGE, ["mood", "walked"]],
    ["docs/web.md, loaded later", LATER, ["mood"]],
    ["README.md", README, ["mood", "walked"]],
  ])("in a page: %s", async (_, code, asked) => {
    const before = await server.records("daily");
    const fresh = Object.fromEntries(asked.map((name) => [name, "new_ledger"]));
    expect(await inPage(reached(code), before)).toEqual([[], fresh]);
    const developing = reached(code).replace("agreement:", "vouched: () => true,\n  agreement:");
    expect(await inPage(developing, before + 1)).toEqual([asked, {}]);
  });

  test("in a page: an answer is tried, and nothing is sent", async () => {
    const said = await inPage(PREVIEW, await server.records("daily"));
    expect(said[0]).toBe("mood");
  });

  test("all of it is typed", () => {
    const account = "const account = { answeredNever: true };\n";
    for (const [name, code] of Object.entries({ PAGE, PREVIEW, LATER, NODE, README })) {
      writeFileSync(join(folder, `src/${name}.ts`), code);
    }
    const imports = PAGE.split("\n").slice(0, 2).join("\n").replace(", recordDaily", "");
    for (const [name, code] of [
      ["VOUCHED", `${account}${VOUCHED}`],
      ["MAPS", MAPS],
      ["SPLIT", SPLIT],
    ]) {
      writeFileSync(join(folder, `src/${name}.ts`), `${imports}\n${code}export { client };\n`);
    }
    const files = ["PAGE", "MAPS", "PREVIEW", "LATER", "NODE", "README", "VOUCHED", "SPLIT"].map(
      (name) => `src/${name}.ts`,
    );
    const options = "--noEmit --strict --target es2022 --module nodenext --types node".split(" ");
    const roots = ["--typeRoots", join(WEB, "node_modules/@types")];
    const tsc = join(WEB, "node_modules/.bin/tsc");
    const made = spawnSync(tsc, [...files, ...options, ...roots], {
      cwd: folder,
      encoding: "utf8",
    });
    expect(made.stdout).toBe("");
  });

  test("in Node", async () => {
    const before = await server.records("daily");
    writeFileSync(join(folder, "src/main.ts"), NODE.replace("https://hearsay.example", server.url));
    // The guide's own command, with the compiler of this checkout.
    const [compile] = blocks("docs/web.md", "sh").flatMap(
      (code) => code.match(/npx tsc .*/g) ?? [],
    );
    const [, ...options] = compile!.split(" ").slice(1);
    execFileSync(join(WEB, "node_modules/.bin/tsc"), options, { cwd: folder, stdio: "inherit" });
    const said = execFileSync(process.execPath, ["out/main.js"], { cwd: folder, encoding: "utf8" });
    expect(said).toBe("[ 'mood' ] {}\ntrue\n");
    expect(await server.records("daily")).toBe(before + 1);
  });
});
