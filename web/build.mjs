// Bundles src/ into dist/: index.html, assets/app.js, assets/app.css and assets/mail.css. No source maps, because the
// server embeds dist as it is. $DIST is another folder than dist/.
import { copyFile, mkdir, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
export const DIST = resolve(process.env.DIST || here("dist"));

const options = {
  absWorkingDir: here("."),
  entryPoints: { app: "src/main.tsx", mail: "src/styles/mail.css" },
  outdir: join(DIST, "assets"),
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
};

const copyStatic = async () => {
  await rm(DIST, { recursive: true, force: true });
  await mkdir(join(DIST, "assets"), { recursive: true });
  await copyFile(here("src/index.html"), join(DIST, "index.html"));
  await copyFile(here("src/icon.svg"), join(DIST, "assets/icon.svg"));
  await copyFile(here("src/theme.js"), join(DIST, "assets/theme.js"));
};

/** Rebuilds after each change. `onBuild` gets the number of errors. */
export const watch = async (onBuild) => {
  await copyStatic();
  const report = { name: "report", setup: (hooks) => hooks.onEnd(({ errors }) => onBuild(errors.length)) };
  await (await context({ ...options, plugins: [report] })).watch();
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await copyStatic();
  await build(options);
}
