// `npm run build`: compile src into dist, which holds nothing of a build before.
import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
rmSync(`${root}dist`, { recursive: true, force: true });
execFileSync(
  process.execPath,
  [`${root}node_modules/typescript/bin/tsc`, "-p", "tsconfig.build.json"],
  {
    cwd: root,
    stdio: "inherit",
  },
);
// The package is made from this folder, and the licence of the project stands above it.
copyFileSync(`${root}../../LICENSE`, `${root}dist/LICENSE`);
