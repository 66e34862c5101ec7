// Runs the tests, each file with a new server, two files at a time, and gives up on a file that does not end.
//
//   node tests/run.mjs                 # all
//   node tests/run.mjs emails storm    # tests/emails.mjs and tests/storm.mjs
//
// MAILONCE_BIN is the server (../target/debug/mailonce by default). TIME_LIMIT_S is the time for one file (900 by default),
// JOBS the files at a time (one for pictures). The output of a file is printed when it ends.
import { spawn } from "node:child_process";
import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { startDev } from "./server.mjs";

const HELPERS = ["browser", "dns", "oauth", "png", "provider", "run", "seed", "server", "sink", "smtp"];
/** These need no server, or start one that is configured for them. */
const WITHOUT_SERVER = ["approval-links", "breaker", "dist", "domains", "empty", "fields", "oidc", "teams"];
/** These take the longest, so they begin first. */
const LONG = ["screenshots", "approve", "setup", "keyboard"];
const JOBS = Number(process.env.JOBS || (process.env.SCREENSHOTS ? 1 : 2));
const TIME_LIMIT_S = Number(process.env.TIME_LIMIT_S || 900);
/** What all files together may take, so that the caller hears which file was slow before its own patience ends. */
const TOTAL_LIMIT_S = 4 * TIME_LIMIT_S;
const begun = Date.now();
const secondsSince = (at) => (Date.now() - at) / 1000;
const all = async () => (await readdir(new URL(".", import.meta.url))).filter((name) => name.endsWith(".mjs")).map((name) => name.slice(0, -4));

/** Ends a file that hangs, for example because it waits for a connection that nobody closes. */
const endLater = (child, name, limit) => setTimeout(() => {
  console.error(`${name}.mjs did not end within ${limit.toFixed(0)} s and is stopped. TIME_LIMIT_S=${TIME_LIMIT_S * 2} gives it more time.`);
  child.kill("SIGKILL");
}, limit * 1000);

const run = async (name) => {
  const started = Date.now();
  const limit = Math.min(TIME_LIMIT_S, TOTAL_LIMIT_S - secondsSince(begun));
  if (limit <= 0) {
    console.error(`${name}.mjs is not run: the files before it took the ${TOTAL_LIMIT_S} s of all.`);
    return false;
  }
  const server = WITHOUT_SERVER.includes(name) ? null : await startDev();
  const file = fileURLToPath(new URL(`${name}.mjs`, import.meta.url));
  const child = spawn(process.execPath, [file], { env: { ...process.env, ...server?.env }, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (data) => (output += data));
  const timer = endLater(child, name, limit);
  const closed = new Promise((done) => child.once("close", done));
  const code = await new Promise((done) => child.once("exit", done));
  // A process that a killed test leaves behind keeps the output open.
  await Promise.race([closed, new Promise((done) => setTimeout(done, 2000))]);
  clearTimeout(timer);
  await server?.stop();
  process.stderr.write(output);
  if (code !== 0 && server) console.error(`The end of the server's log:\n${server.log().split("\n").slice(-20).join("\n")}`);
  console.log(`${code === 0 ? "ok" : "FAILED"} ${name} (${secondsSince(started).toFixed(1)} s)`);
  return code === 0;
};

const wanted = process.argv.slice(2);
const names = wanted.length > 0 ? wanted : (await all()).filter((name) => !HELPERS.includes(name)).sort((one, other) => LONG.includes(other) - LONG.includes(one));
let failed = 0;
const work = async () => {
  for (let name = names.shift(); name; name = names.shift()) if (!(await run(name))) failed += 1;
};
await Promise.all(Array.from({ length: JOBS }, work));
process.exit(failed ? 1 : 0);
