import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { launch, MISSING } from "./chromium.js";
import { freePort, ROOT, Server } from "./server.js";

const WEB = join(ROOT, "client/web");
const EXAMPLE = join(ROOT, "examples/web");
const SHOTS = process.env["SCREENSHOTS"];

describe.skipIf(MISSING)("the example page", () => {
  // A copy beside the original: survey.ts is written into it.
  const folder = MISSING ? "" : mkdtempSync(join(tmpdir(), "hearsay-example-"));
  const here = join(folder, "examples/web");
  let server: Server;
  let site: ChildProcess;
  let origin: string;
  let browser: Awaited<ReturnType<typeof launch>>;

  beforeAll(async () => {
    cpSync(EXAMPLE, here, { recursive: true });
    cpSync(join(WEB, "package.json"), join(folder, "client/web/package.json"));
    execFileSync(process.execPath, [join(WEB, "scripts/build.js")], { stdio: "inherit" });
    for (const each of ["dist", "node_modules"]) {
      execFileSync("ln", ["-s", join(WEB, each), join(folder, "client/web", each)]);
    }
    const port = await freePort();
    origin = `http://127.0.0.1:${port}`;
    server = await Server.start([origin]);
    const survey = join(here, "survey.toml");
    server.command("survey", "create", survey, "--target", server.grpc);
    server.command("codegen", survey, "--typescript", "--out", join(here, "survey.ts"));
    const given = ["--server", server.url, "--port", String(port)];
    site = spawn(process.execPath, [join(here, "serve.mjs"), ...given], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await new Promise((resolve) => site.stdout!.once("data", resolve));
    browser = await launch();
  });

  afterEach(async () => {
    for (const context of browser.contexts()) await context.close();
  });

  afterAll(async () => {
    await browser?.close();
    site?.kill();
    await server?.stop();
    if (folder) rmSync(folder, { recursive: true });
  });

  /** Open the page in a new profile; what the browser complains of fails the test. */
  async function opened(width: number, dark = false): Promise<[Page, string[]]> {
    const context = await browser.newContext({
      viewport: { width, height: 900 },
      colorScheme: dark ? "dark" : "light",
    });
    const page = await context.newPage();
    const faults: string[] = [];
    page.on("pageerror", (error) => faults.push(String(error)));
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) faults.push(message.text());
    });
    await page.goto(origin);
    await page.waitForSelector("html[data-ready]");
    return [page, faults];
  }

  const counted = () => server.records("commute");
  const saying = (page: Page, text: string) =>
    page.waitForFunction(
      (text) => document.getElementById("status")!.textContent!.includes(text),
      text,
    );

  test("its script is typed by the module of codegen and the package", () => {
    writeFileSync(
      join(folder, "tsconfig.json"),
      JSON.stringify({
        extends: join(WEB, "tsconfig.json"),
        compilerOptions: {
          module: "ESNext",
          moduleResolution: "bundler",
          types: [],
          paths: { "hearsay-ldp": [join(WEB, "dist/index.d.ts")] },
        },
        include: [join(here, "*.ts")],
      }),
    );
    execFileSync(join(WEB, "node_modules/.bin/tsc"), ["-p", folder], { stdio: "inherit" });
  });

  test("nothing leaves before it was shown and the person says so", async () => {
    const before = await counted();
    const [page, faults] = await opened(1280);
    const calls: string[] = [];
    page.on("request", (asked) => {
      if (asked.url().startsWith(server.url)) calls.push(asked.url());
    });
    await page.getByLabel("bus").check();
    await page.getByLabel("How many minutes did it take?").fill("25");
    await page.getByRole("group", { name: "Did you arrive late?" }).getByLabel("no").check();

    await page.getByRole("button", { name: "Prepare my report" }).click();
    await page.getByText("Tick this box first").waitFor();
    expect(await page.evaluate(() => document.activeElement!.id)).toBe("consent");
    expect(calls).toEqual([]);

    await page.getByLabel("I agree that this browser").check();
    await page.getByRole("button", { name: "Prepare my report" }).click();
    await saying(page, "Nothing has left yet");
    expect(await page.locator("#reports tr").count()).toBe(3);
    // The screen reader's place moves to what will leave.
    expect(await page.evaluate(() => document.activeElement!.id)).toBe("outbox-title");
    await page.waitForTimeout(2500);
    expect(calls.filter((url) => url.endsWith("/Submit"))).toEqual([]);
    expect(await counted()).toBe(before);

    await page.getByRole("button", { name: "Send it" }).click();
    await saying(page, "Sent.");
    expect(await counted()).toBe(before + 1);
    expect(await page.locator("#outbox").isHidden()).toBe(true);
    expect(await page.locator("#spendings tr").count()).toBe(3);
    expect(await page.getByLabel("bus").isChecked()).toBe(false);
    expect(await page.getByLabel("How many minutes did it take?").inputValue()).toBe("");
    expect(await page.getByLabel("I agree that this browser").isChecked()).toBe(true);

    await page.getByLabel("train").check();
    await page.getByRole("button", { name: "Prepare my report" }).click();
    await saying(page, "today's answer was taken already");
    await page.reload();
    await page.waitForSelector("html[data-ready]");
    expect(await page.locator("#spendings tr").count()).toBe(3);
    // The SDK itself warns of answers that it drops.
    expect(faults.filter((text) => !text.startsWith("hearsay: "))).toEqual([]);
  });

  test("an open page does not show what has left meanwhile", async () => {
    const [page] = await opened(768);
    await page.getByLabel("bus").check();
    await page.getByLabel("I agree that this browser").check();
    await page.getByRole("button", { name: "Prepare my report" }).click();
    await saying(page, "Nothing has left yet");
    const other = await page.context().newPage();
    await other.goto(origin);
    await other.getByRole("button", { name: "Send it" }).click();
    await saying(other, "Sent.");
    await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
    await saying(page, "waited here has left");
    expect(await page.locator("#outbox").isHidden()).toBe(true);
    expect(await page.getByLabel("bus").isChecked()).toBe(false);
  });

  test("what was thrown away does not leave, and stays spent", async () => {
    const before = await counted();
    const [page] = await opened(768);
    await page.getByLabel("bicycle").check();
    await page.getByLabel("Open: epsilon 6").check();
    await page.getByLabel("I agree that this browser").check();
    await page.getByRole("button", { name: "Prepare my report" }).click();
    await saying(page, "Nothing has left yet");
    expect(await page.locator("#reports td").nth(1).textContent()).toBe("open");
    await page.getByRole("button", { name: "Throw it away" }).click();
    await saying(page, "taken back");
    expect(await page.locator("#outbox").isHidden()).toBe(true);
    expect(await page.locator("#spendings tr td").first().textContent()).toBe("1");
    await page.getByLabel("I agree that this browser").check();
    await page.getByRole("button", { name: "Prepare my report" }).click();
    await saying(page, "today's answer was taken already");
    await page.getByRole("button", { name: "ask the server to forget" }).click();
    await saying(page, "asked to forget");
    expect(await counted()).toBe(before);
  });

  test("it works by the keyboard alone", async () => {
    const before = await counted();
    const [page] = await opened(1280);
    const to = async (id: string): Promise<void> => {
      for (let i = 0; i < 40; i++) {
        await page.keyboard.press("Tab");
        const at = await page.evaluate(() => {
          const { id, name, type } = document.activeElement as HTMLInputElement;
          return [id, name, type];
        });
        if (at.includes(id)) return;
      }
      throw new Error(`no Tab leads to ${id}`);
    };
    await to("level");
    await page.keyboard.press("ArrowDown");
    await to("travel");
    await page.keyboard.press("Space");
    await to("minutes");
    await page.keyboard.type("40");
    await to("consent");
    await page.keyboard.press("Space");
    await to("submit");
    await page.keyboard.press("Enter");
    await saying(page, "Nothing has left yet");
    expect(await page.locator("#reports tr").count()).toBe(2);
    await to("send");
    await page.keyboard.press("Enter");
    await saying(page, "Sent.");
    expect(await counted()).toBe(before + 1);
  });

  test.each([360, 768, 1280])(
    "at %i pixels nothing is cut off, and all fields have names",
    async (width) => {
      const [page, faults] = await opened(width);
      if (SHOTS) await page.screenshot({ path: `${SHOTS}/start-${width}.png`, fullPage: true });
      await page.getByLabel("train").check();
      await page.getByLabel("How many minutes did it take?").fill("55");
      await page.getByRole("group", { name: "Did you arrive late?" }).getByLabel("yes").check();
      await page.getByLabel("I agree that this browser").check();
      await page.getByRole("button", { name: "Prepare my report" }).click();
      await saying(page, "Nothing has left yet");
      if (SHOTS) await page.screenshot({ path: `${SHOTS}/report-${width}.png`, fullPage: true });
      const wide = await page.evaluate(() => {
        const cut = [...document.querySelectorAll<HTMLElement>("main *")].filter(
          (each) => each.getBoundingClientRect().right > innerWidth,
        );
        const scrolled = [...document.querySelectorAll(".scroll")].filter(
          (each) => each.scrollWidth > each.clientWidth,
        );
        return [...cut, ...scrolled].map((each) => each.outerHTML);
      });
      expect(wide).toEqual([]);
      const unnamed = await page.evaluate(() =>
        [...document.querySelectorAll<HTMLInputElement>("input")].filter(
          (each) => !each.labels?.length,
        ),
      );
      expect(unnamed).toEqual([]);
      expect(faults).toEqual([]);
    },
  );

  test("its text has enough contrast in light and dark", async () => {
    for (const dark of [false, true]) {
      const [page] = await opened(768, dark);
      if (SHOTS && dark) await page.screenshot({ path: `${SHOTS}/dark-768.png`, fullPage: true });
      const low = await page.evaluate(() => {
        const channels = (color: string) => color.match(/[\d.]+/g)!.map(Number);
        const light = (color: string) => {
          const [r, g, b] = channels(color).map((c) => {
            const part = c / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
          });
          return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
        };
        const behind = (element: Element | null): string => {
          if (!element) return "rgb(255, 255, 255)";
          const { backgroundColor } = getComputedStyle(element);
          return channels(backgroundColor)[3] === 0
            ? behind(element.parentElement)
            : backgroundColor;
        };
        // Disabled buttons need none (WCAG 1.4.3).
        return [...document.querySelectorAll("h1, h2, p, legend, label, button:enabled")]
          .map((element) => {
            const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
            return [
              element.textContent,
              (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05),
            ] as const;
          })
          .filter(([, contrast]) => contrast < 4.5);
      });
      expect(low).toEqual([]);
    }
  });

  test("the page's commands in its README are those of this test", () => {
    const readme = readFileSync(join(EXAMPLE, "README.md"), "utf8");
    for (const command of [
      "hearsay survey create examples/web/survey.toml",
      "hearsay codegen examples/web/survey.toml --typescript --out examples/web/survey.ts",
      "node examples/web/serve.mjs",
    ]) {
      expect(readme).toContain(command);
    }
  });
});
