// Starts a mailonce server of its own for one test, in a temporary folder and on free ports.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** A debug build on a busy machine takes several seconds to start. */
const START_MS = 60_000;
const BIN = resolve(process.env.MAILONCE_BIN || fileURLToPath(new URL("../../target/debug/mailonce", import.meta.url)));

/** Variables of the caller's own mailonce must not reach the server of a test. */
const cleanEnv = () => Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("MAILONCE_")));

/** An address that nobody listens on: for a server whose links must lead to it, or that is started twice. */
export const freeAddress = async () => {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return `127.0.0.1:${port}`;
};

/**
 * Runs `mailonce dev`. Returns the variables that tests read, and `stop`. Data in a `folder` of the caller stays there, so
 * that another start finds it; `http` is the address of the listener.
 */
export const startDev = async (extra = {}, { folder: given, http = "127.0.0.1:0" } = {}) => {
  const folder = given ?? (await mkdtemp(join(tmpdir(), "mailonce-web-")));
  const key = "dashboard-test-0123456789abcdef";
  const child = spawn(BIN, ["dev", "--json", "--data", join(folder, "data"), "--http", http, "--smtp", "127.0.0.1:0"], {
    env: { ...cleanEnv(), MAILONCE_API_KEY: key, ...extra }, stdio: ["ignore", "pipe", "pipe"],
  });
  let out = "";
  let log = "";
  child.stdout.on("data", (data) => (out += data));
  child.stderr.on("data", (data) => (log += data));
  const started = async () => JSON.parse(out.trim() || "null") && readFile(join(folder, "data/dev.json"), "utf8").catch(() => null);
  const end = Date.now() + START_MS;
  while (!(await started())) {
    assert.ok(child.exitCode === null, `the server ended with code ${child.exitCode}: ${log}`);
    assert.ok(Date.now() < end, `the server did not start within ${START_MS / 1000} s: ${log}`);
    await new Promise((done) => setTimeout(done, 50));
  }
  const { url, smtp, sign_in: signIn } = JSON.parse(out);
  const stop = async () => {
    child.kill();
    await new Promise((done) => child.once("exit", done));
    if (!given) await rm(folder, { recursive: true, force: true });
  };
  return { env: { MAILONCE_URL: url, MAILONCE_SIGN_IN: signIn, MAILONCE_SMTP: smtp, MAILONCE_API_KEY: key }, stop, log: () => log };
};
