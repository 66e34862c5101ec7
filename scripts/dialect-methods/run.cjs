#!/usr/bin/env node
// Calls every method of the official SDKs against a `mailonce dev` of its own, and writes what happened to docs/dialects-methods.md.
//
//   node scripts/dialect-methods/run.cjs              writes the table
//   node scripts/dialect-methods/run.cjs --check      fails if the table differs, or fewer methods work than the goals say
//   node scripts/dialect-methods/run.cjs --packages   prints the npm packages; install them where NODE_PATH points
//
// The server is ${MAILONCE_BIN:-target/debug/mailonce}. Each SDK has a file with a table of calls: the method, its arguments and the
// member that the answer must have. A method works only if the server answered 2xx and the SDK returned that member. A method without a
// row is called with placeholders, to see whether the server says why it does not have it.
"use strict";
const { spawn } = require("node:child_process");
const { mkdtempSync, readFileSync, rmSync, writeFileSync } = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");

const ROOT = path.resolve(__dirname, "../..");
const PAGE = path.join(ROOT, "docs/dialects-methods.md");
const [BEGIN, END] = ["<!-- methods begin -->", "<!-- methods end -->"];
const SDKS = ["resend", "usesend", "agentmail"];
const PACKAGES = ["resend@6.37.0", "usesend-js@1.6.3", "agentmail@0.5.27"];

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Calls `ask` until it returns a value. */
async function until(what, ask) {
  for (let n = 0; n < 100; n++) {
    const found = await ask();
    if (found) return found;
    await pause(100);
  }
  throw new Error(`never: ${what}`);
}

/** Starts a server on free ports in a temporary folder. */
async function startServer() {
  const data = mkdtempSync(path.join(os.tmpdir(), "dialect-methods-"));
  const binary = process.env.MAILONCE_BIN || path.join(ROOT, "target/debug/mailonce");
  const env = { PATH: process.env.PATH, HOME: data, MAILONCE_API_KEY: "dialect-methods-0123456789" };
  const flags = ["dev", "--data", data, "--http", "127.0.0.1:0", "--smtp", "127.0.0.1:0"];
  const child = spawn(binary, flags, { cwd: data, env, stdio: "ignore" });
  const stop = () => {
    child.kill();
    rmSync(data, { recursive: true, force: true });
  };
  process.on("exit", stop);
  const file = await until("the server", () => {
    try {
      return JSON.parse(readFileSync(path.join(data, "dev.json"), "utf8"));
    } catch {
      return undefined;
    }
  });
  return { url: file.url, smtp: file.smtp, key: env.MAILONCE_API_KEY };
}

/** Delivers a mail by SMTP. */
function deliver(smtp, to, lines) {
  const [host, port] = smtp.split(":");
  const steps = ["EHLO x.test", "MAIL FROM:<bob@x.test>", `RCPT TO:<${to}>`, "DATA", `${lines.join("\r\n")}\r\n.`, "QUIT"];
  return new Promise((done, failed) => {
    const socket = net.connect(Number(port), host);
    let text = "";
    socket.on("data", (data) => {
      text += data;
      if (!/^\d{3} [^\n]*\n$/m.test(text)) return;
      if (text[0] > "3") return failed(new Error(text));
      text = "";
      steps.length ? socket.write(`${steps.shift()}\r\n`) : socket.end();
    });
    socket.on("close", done);
    socket.on("error", failed);
  });
}

/** A mail with a file. */
const letter = (to, id, subject) => [
  "From: Bob <bob@x.test>", `To: ${to}`, `Subject: ${subject}`, `Message-ID: <${id}@x.test>`, "Date: Sun, 15 Nov 2026 10:00:00 +0000",
  "MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="b"', "", "--b", "Content-Type: text/plain", "", "See the file.", "--b",
  'Content-Type: text/plain; name="a.txt"', 'Content-Disposition: attachment; filename="a.txt"', "", "hello", "--b--",
];

/** Records the answers of the server. */
const answers = [];
const realFetch = globalThis.fetch;
globalThis.fetch = async (...given) => {
  const response = await realFetch(...given);
  answers.push({ status: response.status, body: response.status >= 400 ? await response.clone().text() : "" });
  return response;
};

/** The methods of a client and of the objects below it, by their dotted names. */
function methods(client, hidden) {
  const found = new Map();
  const seen = new Set([client]);
  const walk = (owner, trail) => {
    for (let at = Object.getPrototypeOf(owner); at && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
      for (const [name, about] of Object.entries(Object.getOwnPropertyDescriptors(at))) {
        const dotted = [...trail, name].join(".");
        if (name.startsWith("_") || name === "constructor" || hidden.includes(dotted)) continue;
        if (about.get) below(owner[name], [...trail, name]);
        else if (typeof about.value === "function" && !found.has(dotted)) found.set(dotted, { owner, name });
      }
    }
    for (const [name, value] of Object.entries(owner)) if (!name.startsWith("_")) below(value, [...trail, name]);
  };
  const below = (value, trail) => {
    const isService = value && typeof value === "object" && value.constructor && value.constructor !== Object;
    if (!isService || value instanceof Headers || Array.isArray(value) || seen.has(value)) return;
    seen.add(value);
    walk(value, trail);
  };
  walk(client, []);
  return found;
}

/** Whether a value has a member; `a.b` is a member of a member, or has a dot in its name. An empty name is for answers without a body. */
const has = (value, member) =>
  member === "" || value?.[member] !== undefined || member.split(".").reduce((at, name) => at?.[name], value) !== undefined;

/** The sentence of an error of any dialect. */
function sentence(body) {
  try {
    const parsed = JSON.parse(body);
    return parsed.message ?? parsed.error?.message ?? body;
  } catch {
    return body;
  }
}

/** Calls a method and says what happened. */
async function attempt(call, member, dataOf) {
  answers.length = 0;
  let [returned, thrown] = [undefined, undefined];
  try {
    returned = dataOf(await call());
  } catch (error) {
    thrown = error;
  }
  const last = answers.at(-1);
  const isSuccess = !thrown && answers.every((answer) => answer.status < 400) && member !== undefined && returned !== undefined;
  if (isSuccess && has(returned, member)) return { verdict: "works", why: "", returned };
  if (last?.status === 501) return { verdict: "501", why: sentence(last.body) };
  if (isSuccess) return { verdict: "missing", why: `the answer has no \`${member}\`` };
  const why = last ? `${last.status}: ${sentence(last.body)}` : `no request: ${thrown?.message ?? "nothing was returned"}`;
  return { verdict: "missing", why };
}

/** Calls every method of one SDK. */
async function measure(name, server) {
  const sdk = require(`./${name}.cjs`);
  const client = sdk.client(server);
  const all = methods(client, sdk.hidden);
  const state = { client, server, deliver: (to, id, subject) => deliver(server.smtp, to, letter(to, id, subject)), until };
  const verdicts = new Map();
  for (const [method, given, member, keep] of sdk.calls) {
    if (method === "prepare") {
      await given(state);
      continue;
    }
    const found = all.get(method);
    if (!found) throw new Error(`${name} has no method ${method}`);
    let result = { verdict: "missing", why: "its arguments come from a method that does not work" };
    try {
      const args = await given(state);
      result = await attempt(() => found.owner[found.name](...args), member, sdk.data);
      if (result.verdict === "works" && keep) await keep(state, result.returned);
    } catch (error) {
      if (result.verdict === "works") throw error;
    }
    verdicts.set(method, result);
  }
  for (const [method, { owner, name: last }] of all) {
    if (verdicts.has(method)) continue;
    verdicts.set(method, await attempt(() => owner[last](...sdk.placeholders(method)), undefined, sdk.data));
  }
  await sdk.end?.(state);
  const works = [...verdicts.values()].filter(({ verdict }) => verdict === "works").length;
  const version = JSON.parse(readFileSync(path.join(path.dirname(require.resolve(sdk.package)), sdk.manifest), "utf8")).version;
  return { title: `${sdk.package} ${version}`, goal: sdk.goal, verdicts, works };
}

/** The part of the page for one SDK. */
function section({ title, verdicts, works }) {
  const cell = (text) => text.replaceAll("|", "\\|").replaceAll("\n", " ");
  const rows = [...verdicts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([method, { verdict, why }]) => `| \`${method}\` | ${verdict} | ${cell(why)} |`);
  return [`## ${title}`, "", `${works} of ${verdicts.size} methods work.`, "", "| method | verdict | why |", "|---|---|---|", ...rows, ""].join("\n");
}

async function main() {
  if (process.argv.includes("--packages")) return console.log(PACKAGES.join(" "));
  const server = await startServer();
  const results = [];
  for (const name of SDKS) results.push(await measure(name, server));
  const old = readFileSync(PAGE, "utf8");
  const [before, rest] = old.split(`${BEGIN}\n`);
  const after = rest.split(END)[1];
  const page = `${before}${BEGIN}\n\n${results.map(section).join("\n")}\n${END}${after}`;
  const faults = results.filter(({ works, goal }) => works < goal).map(({ title, works, goal }) => `${title}: ${works} methods work, the goal is ${goal}`);
  for (const { title, works, verdicts } of results) console.log(`${title}: ${works} of ${verdicts.size}`);
  if (!process.argv.includes("--check")) writeFileSync(PAGE, page);
  else if (page !== old) {
    const lines = new Set(old.split("\n"));
    faults.push(`docs/dialects-methods.md differs; run scripts/dialect-methods/run.cjs:\n${page.split("\n").filter((line) => !lines.has(line)).join("\n")}`);
  }
  if (faults.length) throw new Error(faults.join("\n"));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
