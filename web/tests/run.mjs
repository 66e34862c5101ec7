// Runs the tests, each file with a new server.
//
//   node tests/run.mjs                 # all
//   node tests/run.mjs emails storm    # tests/emails.mjs and tests/storm.mjs
//
// MAILONCE_BIN is the server (../target/debug/mailonce by default).
import { spawn } from "node:child_process";
import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { startDev } from "./server.mjs";

const HELPERS = ["browser", "png", "run", "seed", "server", "smtp"];
const all = async () => (await readdir(new URL(".", import.meta.url))).filter((name) => name.endsWith(".mjs")).map((name) => name.slice(0, -4));

const run = async (name) => {
  const server = await startDev();
  const file = fileURLToPath(new URL(`${name}.mjs`, import.meta.url));
  const started = Date.now();
  const child = spawn(process.execPath, [file], { env: { ...process.env, ...server.env }, stdio: "inherit" });
  const code = await new Promise((done) => child.once("exit", done));
  await server.stop();
  console.log(`${code === 0 ? "ok" : "FAILED"} ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  return code === 0;
};

const wanted = process.argv.slice(2);
const names = wanted.length > 0 ? wanted : (await all()).filter((name) => !HELPERS.includes(name)).sort();
let failed = 0;
for (const name of names) if (!(await run(name))) failed += 1;
process.exit(failed ? 1 : 0);
