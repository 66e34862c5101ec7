// Markup and script URLs in every field that a stranger, an agent or another server fills: one table, every page on which a
// field is shown. The text is shown as text, and nothing runs. Starts a server of its own, whose next hop is hostile, too.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectProgram } from "./oauth.mjs";
import { freeAddress, startDev } from "./server.mjs";
import { startMailSink } from "./sink.mjs";

const SCRIPT_URL = "javascript:window.__xss=1";
/** What is written into a field. Its name makes it visible which one a page shows. */
const hostile = (field) => `"><img src=x onerror=window.__xss=1>${field}`;
/** What a page shows of it: JSON escapes the quote, and a content type loses it. */
const shown = (field) => hostile(field).slice(1);
/** The part before the @ of an envelope sender. The server takes no quotes, brackets and spaces there. */
const ENVELOPE = "'/onerror=window.__xss=1/{{7*7}}/envelope-sender";
/** What a page shows of it as a part of a URL. */
const shownInUrl = (field) => encodeURIComponent(hostile(field)).replaceAll("%3D", "=");

const folder = await mkdtemp(join(tmpdir(), "mailonce-web-fields-"));
const sink = await startMailSink((address) => (address.startsWith("refused") ? `550 5.1.1 ${hostile("reply of the next hop")}` : "250 ok"));
const MAILONCE_CONFIG = join(folder, "mailonce.toml");
// Bounces come back only to a domain of the configuration.
await writeFile(MAILONCE_CONFIG, `[smtp]\ndomains = ["mailonce.test"]\n\n${sink.config}`);
const server = await startDev({ MAILONCE_CONFIG }, { http: await freeAddress() });
Object.assign(process.env, server.env);
const { api, eventually, withBrowser } = await import("./browser.mjs");
const { compose, deliver } = await import("./smtp.mjs");

const AGENT = "agent@mailonce.test";
const SUPPRESSED = "never@example.com";
const send = (to, more = {}, headers = {}) => api("POST", "/v1/emails", { from: AGENT, to: [to], subject: "Hello", text: "Hello", ...more }, headers);
const becomes = (id, state) => eventually(async () => (await api("GET", `/v1/emails/${id}`)).state === state, `the email is ${state}`);

/** A place that shows a field: a path, and the tabs and buttons to press there. */
const at = (path, ...press) => ({ path, press });
const email = ({ id }, ...press) => at(`/emails/${id}`, ...press);

// Each of these functions fills fields. It returns what each field shows, with the places.

const nextHop = async () => {
  const refused = await send("refused@example.com");
  await becomes(refused.id, "failed");
  const bounced = await send("bounced@example.com");
  const mail = await eventually(() => sink.mails.find(({ to }) => to.includes("bounced@example.com")), "the email leaves");
  await deliver({ from: "", to: mail.from, raw: [
    "From: MAILER-DAEMON@mx.example", `To: ${mail.from}`, "Subject: Undelivered", "MIME-Version: 1.0", "Content-Type: multipart/report; report-type=delivery-status; boundary=b", "",
    "--b", "", "sorry", "--b", "Content-Type: message/delivery-status", "", "Reporting-MTA: dns; mx.example", "",
    "Final-Recipient: rfc822; bounced@example.com", "Action: failed", "Status: 5.1.1", `Diagnostic-Code: smtp; 550 5.1.1 ${hostile("bounce")}`, "", "--b--", "",
  ].join("\n") });
  await becomes(bounced.id, "bounced");
  return [[shown("reply of the next hop"), email(refused, "Attempts")], ["naming the recipient", email(refused, "Attempts")], [shown("bounce"), email(bounced, "Attempts")]];
};

const receive = async () => {
  const html = `<p>Your code is 402625. <a href="${SCRIPT_URL}">${hostile("link text").replaceAll("<", "&lt;")}</a>
    <a href='https://shop.example/verify?token=${hostile("link URL")}'>Verify your address</a></p>`;
  const attachment = (type, filename) => ({ type, content: "x", headers: { "Content-Disposition": `attachment; filename="${filename}"` } });
  await deliver({ from: "eve@evil.example", to: AGENT, raw: compose({
    From: "eve@evil.example", To: AGENT, Subject: hostile("thread subject"), "Message-ID": `<${hostile("Message-ID")}@evil.example>`,
  }, [{ type: "text/html; charset=utf-8", content: html }, attachment("text/plain", hostile("file name").replaceAll('"', "'")), attachment(`x/${hostile("content type")}`, "type.bin")]) });
  return eventually(async () => (await api("GET", `/v1/inboxes/${AGENT}/messages`)).data[0], "the message");
};

/** The same mail twice, so that its sender is also in the list of duplicates. */
const receiveTwice = async () => {
  const raw = `From: eve@evil.example\nTo: ${AGENT}\nSubject: Twice\nMessage-ID: <twice@evil.example>\n\nHi\n`;
  await assert.rejects(deliver({ from: '"<img src=x onerror=window.__xss=1>"@evil.example', to: AGENT, raw }), /501 5.1.7/);
  for (let time = 0; time < 2; time += 1) await deliver({ from: `${ENVELOPE}@evil.example`, to: AGENT, raw });
  await eventually(async () => (await api("GET", "/v1/deliveries?state=duplicate")).data[0], "the duplicate");
};

const inbound = async () => {
  const message = await receive();
  await receiveTwice();
  const [path, thread, inbox] = [`/messages/${message.id}`, `/threads/${message.thread_id}`, message.inbox_id];
  const { rev } = await api("GET", `/v1/inboxes/${inbox}`);
  await api("PATCH", `/v1/inboxes/${inbox}`, { rev, name: hostile("inbox name"), agent: hostile("agent") });
  await api("POST", `/v1${thread}/lease`, { holder: hostile("lease holder"), ttl_s: 600 });
  await api("PATCH", `/v1${thread}`, { labels: [hostile("thread label")] });
  return [
    [shown("thread subject"), at(path), at(`/inboxes/${inbox}`), at("/threads"), at(thread)],
    [shown("Message-ID"), at(path, "Header")],
    [shown("file name"), at(path)],
    [shown("content type"), at(path)],
    [shown("link text"), at(path, "Text")],
    [shownInUrl("link URL"), at(path, "Show values")],
    [SCRIPT_URL, at(path, "Show values")],
    [ENVELOPE, at(`/inboxes/${inbox}`, "Arrivals"), at("/duplicates", "Received")],
    [shown("inbox name"), at("/inboxes"), at(`/inboxes/${inbox}`, "Settings")],
    [shown("agent"), at("/inboxes"), at(`/inboxes/${inbox}`, "Settings")],
    [shown("lease holder"), at(thread), at("/threads")],
    [shown("thread label"), at(thread), at("/threads")],
  ];
};

/** Of two claims the holder is lost; the third one ends with a result, which no page shows. */
const claims = async () => {
  const intended = await api("POST", "/v1/claims", { intent: { type: hostile("claim type"), entity: hostile("claim entity") }, label: hostile("claim label"), holder: hostile("holder"), lease_s: 1 });
  const keyed = await api("POST", "/v1/claims", { key: hostile("claim key"), lease_s: 1 });
  const { id, token } = await api("POST", "/v1/claims", { key: "ended", lease_s: 60 });
  await api("POST", `/v1/claims/${id}/complete`, { token, result: { note: hostile("claim result") } });
  const asked = await eventually(async () => {
    const { data } = await api("GET", "/v1/escalations?state=open&reason=claim_unknown");
    return data.length === 2 && data;
  }, "two lost claims");
  const question = (lost) => at(`/needs-you/${asked.find(({ about }) => about.claim === lost.id).id}`);
  return [
    [shown("claim type"), question(intended)],
    [shown("claim entity"), question(intended)],
    [shown("claim label"), question(intended)],
    [shown("claim key"), question(keyed), at("/needs-you")],
  ];
};

const outbound = async () => {
  await api("POST", "/v1/templates", { name: "welcome", subject: hostile("template subject"), text: hostile("template text") });
  const templated = await send("new@example.com", { subject: undefined, text: undefined, template: { name: "welcome" } });
  const key = hostile("idempotency key");
  const plain = await send("new@example.com", {
    subject: hostile("subject"), text: hostile("text"), tags: [hostile("tag")], headers: { "X-Evil": hostile("header") }, attachments: [{ filename: hostile("file of an agent"), content: "aGVsbG8=" }],
  }, { "idempotency-key": key, "mailonce-call-id": encodeURIComponent(hostile("call")) });
  return [
    [shown("template subject"), email(templated), at("/emails")],
    [shown("template text"), email(templated, "Content")],
    [shown("subject"), email(plain), at("/emails"), at("/")],
    [shown("text"), email(plain, "Content")],
    [shown("file of an agent"), email(plain, "Content")],
    [shown("tag"), email(plain, "Raw")],
    [shown("header"), email(plain, "Raw")],
    [shown("idempotency key"), email(plain), at("/keys"), at(`/keys/${encodeURIComponent(key)}`)],
    [shown("call"), email(plain)],
  ];
};

const policy = async () => {
  await api("POST", "/v1/rules", { name: hostile("rule name"), direction: "outbound", actions: [{ type: "approve" }], match: { conditions: [{ field: "subject", operator: "contains", value: "Invoice" }] } });
  const held = await send("new@example.com", { subject: "Invoice" });
  const question = (await api("GET", "/v1/escalations?state=open&reason=approval")).data[0].id;
  await api("POST", "/v1/escalations", { question: hostile("question"), entity: hostile("entity") });
  await api("POST", "/v1/budgets", { name: hostile("budget name"), scope: { team: true }, measure: "mails", per: "day", limit: 1000, at_limit: "flag" });
  await api("POST", "/v1/suppressions", { address: SUPPRESSED, reason: hostile("suppression reason") });
  return [
    [shown("rule name"), email(held, "Policy trace"), at("/setup/rules"), at(`/needs-you/${question}`), at("/needs-you")],
    [shown("question"), at("/needs-you")],
    [shown("budget name"), at("/stops")],
  ];
};

/** No page shows the reason of an erasure and the name of another team. */
const access = async () => {
  await api("POST", "/v1/erasures", { address: "gone@example.com", reason: hostile("erasure reason") });
  await api("POST", "/v1/teams", { name: hostile("team name") });
  const endpoint = await api("POST", "/v1/endpoints", { url: "http://127.0.0.1:9/hooks", description: hostile("endpoint description") });
  const key = await api("POST", "/v1/api-keys", { name: hostile("API key name"), scopes: ["send"] });
  await api("POST", "/v1/stops", { scope: { api_key: key.id }, mode: "wait", reason: hostile("stop reason") });
  await api("POST", "/v1/people", { name: hostile("person name"), role: "approver" });
  await api("POST", "/v1/notification-targets", { name: hostile("target name"), kind: "slack", url: "https://hooks.slack.com/services/T0/B0/x" });
  return [
    [shown("endpoint description"), at("/webhooks"), at(`/webhooks/${endpoint.id}`)],
    [shown("API key name"), at("/setup/api-keys"), at("/stops"), at("/setup/audit")],
    [shown("stop reason"), at("/stops")],
    [shown("person name"), at("/setup/people")],
    [shown("target name"), at("/setup/people")],
    [shown("client name"), at("/setup/people")],
  ];
};

/** Pages that show nothing of it, or another part, and what an address can bring in. */
const OTHERS = ["/emails?q=X", "/emails/X", "/keys/X", "/messages/X", "/threads/X", "/setup/audit?action=X", "/needs-you?group=X", "/live?types=X", "/setup/X", "/live", "/duplicates", "/setup/audit", "/setup/settings", "/setup/connect"]
  .map((path) => path.replace("X", encodeURIComponent(hostile("address"))));

/** Fields that take neither markup nor script URLs. */
const refuseScripts = async () => {
  const call = async (path, body) => (await fetch(process.env.MAILONCE_URL + path, { method: "POST", body: JSON.stringify(body), headers: { authorization: `Bearer ${process.env.MAILONCE_API_KEY}`, "content-type": "application/json" } })).status;
  assert.deepEqual(await Promise.all([
    call("/v1/endpoints", { url: SCRIPT_URL }), call("/v1/notification-targets", { name: "x", kind: "slack", url: SCRIPT_URL }),
    call("/v1/templates", { name: hostile("template"), subject: "x", text: "x" }), call("/oauth/register", { client_name: "x", redirect_uris: [SCRIPT_URL] }),
  ]), [422, 422, 422, 400]);
};

const unharmed = async (page) => {
  for (const frame of page.frames()) {
    await frame.waitForLoadState();
    const found = await frame.evaluate(() => [globalThis.__xss, document.querySelectorAll("[onerror], img[src=x], [href^='javascript:'], main script").length]);
    assert.deepEqual(found, [undefined, 0], `${page.url()}: something of a stranger became a part of ${frame.url()}`);
  }
};

/** Opens every place once, and looks for all fields that are shown there. */
const lookAt = async ({ page, goto }, table) => {
  const places = new Map();
  for (const [words, ...where] of table) for (const place of where) {
    const name = [place.path, ...place.press].join(" > ");
    if (!places.has(name)) places.set(name, { ...place, all: [] });
    places.get(name).all.push(words);
  }
  for (const [name, { path, press, all }] of [...places].sort(([one], [other]) => (one < other ? -1 : 1))) {
    if (new URL(page.url()).pathname !== path) await goto(path);
    for (const label of press) await page.getByRole("tab", { name: label }).or(page.getByRole("button", { name: label, exact: true })).first().click();
    for (const words of all) await page.locator("main").getByText(words).first().waitFor().catch(() => assert.fail(`${name} does not show ${words}`));
    await unharmed(page);
  }
};

try {
  await refuseScripts();
  const table = [];
  for (const fill of [nextHop, inbound, claims, outbound, policy, access]) table.push(...await fill());
  await withBrowser(async (tools) => {
    const { page, goto } = tools;
    page.on("dialog", () => assert.fail("a dialog was opened"));
    await connectProgram(tools, hostile("client name"), async () => {
      await page.getByText(hostile("client name")).first().waitFor();
      await unharmed(page);
    });
    await lookAt(tools, table);
    await goto("/setup/rules");
    for (const [label, value] of [["To", SUPPRESSED], ["Text", "Hi"]]) await page.getByLabel(label, { exact: true }).fill(value);
    await page.getByRole("button", { name: "Simulate" }).click();
    await page.locator("main").getByText(hostile("suppression reason")).first().waitFor();
    await unharmed(page);
    for (const path of OTHERS) {
      await goto(path);
      await page.locator("main h1").waitFor();
      await page.waitForFunction(() => document.querySelectorAll("main .loading").length === 0);
      await unharmed(page);
    }
  }, { allow: [/status of (400|404|422).*\/v1\//] });
} finally {
  await server.stop();
  sink.close();
  await rm(folder, { recursive: true, force: true });
}
