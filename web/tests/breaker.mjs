// A relay that refuses every connection opens its circuit breaker: the page shows it and why. When the relay works again,
// the page shows that, too, without a reload, and what waited arrives once. Starts a server of its own, with that relay.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freeAddress, startDev } from "./server.mjs";
import { relayConfig, startMailSink } from "./sink.mjs";

const folder = await mkdtemp(join(tmpdir(), "mailonce-web-breaker-"));
const port = Number((await freeAddress()).split(":")[1]);
const MAILONCE_CONFIG = join(folder, "mailonce.toml");
await writeFile(MAILONCE_CONFIG, relayConfig(port, "relay"));
const server = await startDev({ MAILONCE_CONFIG }, { folder });
Object.assign(process.env, server.env);
const { api, eventually, fitsWidth, PHONE, SLOW_MS, withBrowser } = await import("./browser.mjs");

const SUBJECTS = ["Order 1", "Order 2", "Order 3"];
const send = (subject) => api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject, text: subject }, { "idempotency-key": subject });
const relayRow = (page) => page.getByRole("table", { name: "Transports" }).getByRole("row").filter({ has: page.getByRole("button", { name: "Test relay" }) });

const opens = async ({ page, goto, axe, picture }) => {
  await goto("/stops");
  await relayRow(page).getByText("working", { exact: true }).waitFor();
  // Three attempts in a row that fail open the breaker. No reload: an event tells the page.
  await Promise.all(SUBJECTS.map(send));
  // The breaker is open for five seconds at a time, so the state and the reason are looked for at once.
  const paused = relayRow(page).filter({ has: page.getByText("paused", { exact: true }) });
  await paused.getByText(/^circuit breaker open: 127\.0\.0\.1:\d+: .*refused/i).waitFor({ timeout: SLOW_MS });
  await axe();
  await picture("breaker-open", { fullPage: true });
};

/** The breaker lets one attempt through from time to time, so the words change between open and half open. */
const isShownOnPhone = async ({ page, goto, axe }) => {
  for (const path of ["/stops", "/setup/transports"]) {
    await goto(path);
    await relayRow(page).getByText(/^circuit breaker (open|half open)/).waitFor();
    await fitsWidth(page);
    await axe();
  }
};

const closes = async ({ page }, relay) => {
  await relayRow(page).getByText("working", { exact: true }).waitFor({ timeout: SLOW_MS });
  await relayRow(page).getByText("circuit breaker closed", { exact: true }).waitFor();
  await eventually(() => relay.mails.length === SUBJECTS.length, "every email arrives", SLOW_MS);
  assert.deepEqual(relay.mails.map(({ subject }) => subject).sort(), SUBJECTS, "each once");
};

let relay = null;
try {
  await withBrowser(async (tools) => {
    await opens(tools);
    await withBrowser(isShownOnPhone, { viewport: PHONE, colorScheme: "dark" });
    relay = await startMailSink(undefined, port);
    await closes(tools, relay);
  });
} finally {
  await server.stop();
  relay?.close();
  await rm(folder, { recursive: true, force: true });
}
