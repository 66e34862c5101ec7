// Runs AgentMail's official Node package, unmodified, against a running mailonce. Calls every method that the dialect
// covers, then prints the called methods and all methods as JSON.
"use strict";
const assert = require("assert");
const http = require("http");
const net = require("net");
const { AgentMailClient, AgentMailError, AgentMail } = require("agentmail");
const { Webhook } = require("svix");
const { URL: BASE, KEY, SMTP } = process.env;
const ROOT = `${BASE}/compat/agentmail`;

const called = new Set();
const refused = {};
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const is = (value, wanted) => assert.deepStrictEqual(value, wanted);

/// Records which methods of a client are called.
function watched(client, path = "") {
  return new Proxy(client, {
    get(target, name) {
      const value = target[name];
      if (typeof name !== "string" || name.startsWith("_")) return value;
      const here = path ? `${path}.${name}` : name;
      if (typeof value === "function") return (...given) => (called.add(here), value.apply(target, given));
      return value !== null && typeof value === "object" ? watched(value, here) : value;
    },
  });
}

/// Every method of a client, by its path.
function methods(client, path = "") {
  const found = [];
  for (let at = Object.getPrototypeOf(client); at && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    for (const [name, about] of Object.entries(Object.getOwnPropertyDescriptors(at))) {
      if (name.startsWith("_") || name === "constructor") continue;
      const here = path ? `${path}.${name}` : name;
      if (about.get) found.push(...methods(client[name], here));
      else if (typeof about.value === "function" && name !== "fetch") found.push(here);
    }
  }
  return [...new Set(found)];
}

const environment = { http: ROOT, websockets: ROOT.replace("http", "ws") };
const plain = new AgentMailClient({ apiKey: KEY, environment });
const client = watched(plain);
// The package posts again on every 5xx, also on 501.
const impatient = new AgentMailClient({ apiKey: KEY, environment, maxRetries: 0 });

async function native(method, path, body) {
  const headers = { Authorization: `Bearer ${KEY}`, "Content-Type": "application/json" };
  const answer = await fetch(BASE + path, { method, headers, body: body && JSON.stringify(body) });
  return answer.json();
}

/// How many emails a recipient has.
const mails = async (to) => (await native("GET", `/v1/emails?limit=100&to=${encodeURIComponent(to)}`)).data;

async function fails(promise, type, status) {
  const error = await promise.then(() => assert.fail("it was not refused"), (error) => error);
  assert.ok(error instanceof type, `${error && error.constructor.name}: ${error}`);
  is(error.statusCode, status);
  assert.ok(error.body.name && error.body.message && error.body.code && error.body.fix, JSON.stringify(error.body));
  return error.body;
}

async function until(what, look) {
  for (let n = 0; n < 100; n++) {
    const found = await look();
    if (found) return found;
    await sleep(100);
  }
  assert.fail(`${what} did not come`);
}

/// Receives a mail by SMTP.
function arrives(from, to, lines) {
  const [host, port] = SMTP.split(":");
  const steps = ["EHLO x.test", `MAIL FROM:<${from}>`, `RCPT TO:<${to}>`, "DATA", `${lines.join("\r\n")}\r\n.`, "QUIT"];
  return new Promise((done, failed) => {
    const socket = net.connect(Number(port), host);
    let text = "";
    socket.on("data", (data) => {
      text += data;
      if (!/^\d{3} [^\n]*\n$/m.test(text)) return;
      if (text[0] > "3") return failed(new Error(text));
      text = "";
      steps.length ? socket.write(steps.shift() + "\r\n") : socket.end();
    });
    socket.on("close", done);
    socket.on("error", failed);
  });
}

const letter = (from, to, id, subject, more = [], text = ["Hello, agent."]) =>
  [`From: ${from}`, `To: ${to}`, `Subject: ${subject}`, `Message-ID: ${id}`, "Date: Sun, 15 Nov 2026 10:00:00 +0000", ...more, "", ...text];

const FILE = ['Content-Type: multipart/mixed; boundary="b"', "MIME-Version: 1.0"];
const WITH_FILE = ["--b", "Content-Type: text/plain", "", "See the file.", "--b", 'Content-Type: text/csv; name="a.csv"',
  'Content-Disposition: attachment; filename="a.csv"', "", "1,2,3", "--b--"];

module.exports = {
  AgentMail, AgentMailClient, AgentMailError, BASE, FILE, KEY, ROOT, SMTP, WITH_FILE, Webhook, arrives, assert, called,
  client, environment, fails, http, impatient, is, letter, mails, methods, native, plain, refused, sleep, until,
};

async function main() {
  const inbox = await require("./node_inboxes.cjs")();
  await require("./node_sends.cjs")(inbox);
  await require("./node_mail.cjs")(inbox);
  await require("./node_rest.cjs")(inbox);
  console.log(JSON.stringify({ called: [...called].sort(), methods: methods(plain).sort(), refused }));
  process.exit(0);
}

if (require.main === module) {
  main().catch((error) => {
    console.error(error, error && error.body ? JSON.stringify(error.body) : "");
    process.exit(1);
  });
}
