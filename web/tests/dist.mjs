// The committed dist is what the source builds, and it is small. The types of the API are those of openapi.json.
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
  console.log(`dist: ${size} bytes compressed`);
} finally {
  await rm(fresh, { recursive: true, force: true });
}
