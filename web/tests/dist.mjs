// The committed dist is what the source builds, and it is small. The types of the API are those of openapi.json, and every
// call of the source is in it: what the page can do, an API key can do. The page that `mailonce demo storm` writes, which has
// no scripts, has the colors of the dashboard.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const LIMIT = 200_000;
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const files = async (folder) => (await readdir(folder, { recursive: true, withFileTypes: true }))
  .filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1)).sort();

const { paths } = JSON.parse(await readFile(here("../../openapi.json"), "utf8"));
/** The methods of a path with {} for each part that is computed. */
const methodsOf = (path) => {
  const parts = path.split("/");
  const isSame = (known) => known.length === parts.length && known.every((part, index) => part === parts[index] || parts[index] === "{}" || (part.startsWith("{") && part.endsWith("}")));
  return Object.entries(paths).filter(([known]) => isSame(known.split("/"))).flatMap(([, operations]) => Object.keys(operations));
};

/** Returns how many paths the source has. */
const checkCalls = async () => {
  const source = here("../src");
  const wrong = [];
  let count = 0;
  for (const name of (await files(source)).filter((file) => /\.tsx?$/.test(file) && !file.endsWith("schema.ts"))) {
    for (const [, verb, , path] of (await readFile(join(source, name), "utf8")).matchAll(/(?:\b(get|post|patch|del)(?:<[^(\n]*>)?\()?(["'`])(\/v1\/[^"'`\s?]*)/g)) {
      const methods = methodsOf(path.replace(/\$\{[^}]*\}/g, "{}"));
      const method = verb === "del" ? "delete" : verb;
      if (methods.length === 0 || (method && !methods.includes(method))) wrong.push(`${name}: ${verb ?? ""} ${path}`);
      count += 1;
    }
  }
  assert.deepEqual(wrong, [], "calls that openapi.json does not have");
  return count;
};

/** The colors that a style sheet defines, by name. */
const colorsOf = (css) => Object.fromEntries([...css.matchAll(/--([\w-]+): (light-dark\([^;]+\));/g)].map(([, name, color]) => [name, color]));

const checkDemoPage = async () => {
  const [page, dashboard] = await Promise.all(["../../crates/mailonce/src/cli/demo/storm.html", "../src/styles/base.css"].map((path) => readFile(here(path), "utf8")));
  const [own, known] = [colorsOf(page), colorsOf(dashboard)];
  for (const name of ["accent", "good", "bad"]) assert.ok(own[name], `storm.html does not define --${name}`);
  for (const [name, color] of Object.entries(own)) assert.equal(color, known[name], `--${name} in storm.html is not that of base.css`);
};

await checkDemoPage();
const fresh = await mkdtemp(join(tmpdir(), "mailonce-dist-"));
try {
  execFileSync(process.execPath, [here("../build.mjs")], { env: { ...process.env, DIST: fresh } });
  const committed = here("../dist");
  assert.deepEqual(await files(committed), await files(fresh), "run `npm run build` and commit dist");
  let size = 0;
  for (const name of await files(fresh)) {
    const content = await readFile(join(fresh, name));
    assert.ok(content.equals(await readFile(join(committed, name))), `${name} is out of date: run \`npm run build\` and commit dist`);
    size += gzipSync(content, { level: 9 }).length;
  }
  assert.ok(size <= LIMIT, `dist has ${size} bytes compressed, at most ${LIMIT} are allowed`);
  const types = join(fresh, "schema.ts");
  execFileSync(process.execPath, [here("../types.mjs"), types]);
  assert.equal(await readFile(here("../src/api/schema.ts"), "utf8"), await readFile(types, "utf8"), "src/api/schema.ts is out of date: run `npm run types`");
  console.log(`dist: ${size} bytes compressed, ${await checkCalls()} calls`);
} finally {
  await rm(fresh, { recursive: true, force: true });
}
