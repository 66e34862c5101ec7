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
const send = (to, more = {}, headers = {}) => api("POST", "/v1/emails", { from: AGENT, to: [to], subject: "Hello", text: "Hello", ...more }, headers);
const becomes = (id, state) => eventually(async () => (await api("GET", `/v1/emails/${id}`)).state === state, `the email is ${state}`);

const refusedEmail = async () => {
  const { id } = await send("refused@example.com");
  await becomes(id, "failed");
  return id;
};

const bouncedEmail = async () => {
  const { id } = await send("bounced@example.com");
  const mail = await eventually(() => sink.mails.find(({ to }) => to.includes("bounced@example.com")), "the email leaves");
  await deliver({ from: "", to: mail.from, raw: [
    "From: MAILER-DAEMON@mx.example", `To: ${mail.from}`, "Subject: Undelivered", "MIME-Version: 1.0", "Content-Type: multipart/report; report-type=delivery-status; boundary=b", "",
    "--b", "", "sorry", "--b", "Content-Type: message/delivery-status", "", "Reporting-MTA: dns; mx.example", "",
    "Final-Recipient: rfc822; bounced@example.com", "Action: failed", "Status: 5.1.1", `Diagnostic-Code: smtp; 550 5.1.1 ${hostile("bounce")}`, "", "--b--", "",
  ].join("\n") });
  await becomes(id, "bounced");
  return id;
};

const receivedMessage = async () => {
  const html = `<p>Your code is 402625. <a href="${SCRIPT_URL}">${hostile("link text").replaceAll("<", "&lt;")}</a>
    <a href='https://shop.example/verify?token=${hostile("link URL")}'>Verify your address</a></p>`;
  await deliver({ from: "eve@evil.example", to: AGENT, raw: compose({
    From: "eve@evil.example", To: AGENT, Subject: hostile("thread subject"), "Message-ID": `<${hostile("Message-ID")}@evil.example>`,
  }, [
    { type: "text/html; charset=utf-8", content: html },
    { type: "text/plain", content: "x", headers: { "Content-Disposition": `attachment; filename="${hostile("file name").replaceAll('"', "'")}"` } },
    { type: `x/${hostile("content type")}`, content: "x", headers: { "Content-Disposition": "attachment; filename=type.bin" } },
  ]) });
  return eventually(async () => (await api("GET", `/v1/inboxes/${AGENT}/messages`)).data[0], "the message");
};

/** Of two claims the holder is lost; the third one ends with a result. */
const claimsOfAgents = async () => {
  const claim = await api("POST", "/v1/claims", { intent: { type: hostile("claim type"), entity: hostile("claim entity") }, label: hostile("claim label"), holder: hostile("holder"), lease_s: 1 });
  const keyed = await api("POST", "/v1/claims", { key: hostile("claim key"), lease_s: 1 });
  const { id, token } = await api("POST", "/v1/claims", { key: "ended", lease_s: 60 });
  await api("POST", `/v1/claims/${id}/complete`, { token, result: { note: hostile("claim result") } });
  const asked = await eventually(async () => {
    const { data } = await api("GET", "/v1/escalations?state=open&reason=claim_unknown");
    return data.length === 2 && data;
  }, "two lost claims");
  const question = (lost) => asked.find(({ about }) => about.claim === lost.id).id;
  return { claim: question(claim), keyed: question(keyed) };
};

/** Fills every field. Returns what each shows, with the places: a path, or a path with the tabs and buttons to press. */
const fillAll = async () => {
  const at = (path, ...press) => ({ path, press });
  const text = (field) => hostile(field);
  const inbox = (await api("GET", "/v1/inboxes")).data[0].id;
  const refused = await refusedEmail();
  const bounced = await bouncedEmail();
  const message = await receivedMessage();
  const claims = await claimsOfAgents();
  await api("POST", "/v1/erasures", { address: "gone@example.com", reason: text("erasure reason") });
  await api("POST", "/v1/teams", { name: text("team name") });
  await api("POST", "/v1/suppressions", { address: "never@example.com", reason: text("suppression reason") });
  await api("POST", "/v1/templates", { name: "welcome", subject: text("template subject"), text: text("template text") });
  const templated = await send("new@example.com", { subject: undefined, text: undefined, template: { name: "welcome" } });
  const labelled = await send("new@example.com", { subject: text("subject"), text: text("text"), tags: [text("tag")], headers: { "X-Evil": text("header") }, attachments: [{ filename: text("file of an agent"), content: "aGVsbG8=" }] }, { "idempotency-key": text("idempotency key"), "mailonce-call-id": encodeURIComponent(text("call")) });
  await api("POST", "/v1/rules", { name: text("rule name"), direction: "outbound", actions: [{ type: "approve" }], match: { conditions: [{ field: "subject", operator: "contains", value: "Invoice" }] } });
  const held = await send("new@example.com", { subject: "Invoice" });
  const question = (await api("GET", "/v1/escalations?state=open&reason=approval")).data[0].id;
  await api("POST", "/v1/escalations", { question: text("question"), entity: text("entity") });
  const endpoint = (await api("POST", "/v1/endpoints", { url: "http://127.0.0.1:9/hooks", description: text("endpoint description") })).id;
  const key = (await api("POST", "/v1/api-keys", { name: text("API key name"), scopes: ["send"] })).id;
  await api("POST", "/v1/stops", { scope: { api_key: key }, mode: "wait", reason: text("stop reason") });
  await api("POST", "/v1/people", { name: text("person name"), role: "approver" });
  await api("POST", "/v1/budgets", { name: text("budget name"), scope: { team: true }, measure: "mails", per: "day", limit: 1000, at_limit: "flag" });
  await api("POST", "/v1/notification-targets", { name: text("target name"), kind: "slack", url: "https://hooks.slack.com/services/T0/B0/x" });
  await api("PATCH", `/v1/inboxes/${inbox}`, { rev: (await api("GET", `/v1/inboxes/${inbox}`)).rev, name: text("inbox name"), agent: text("agent") });
  await api("POST", `/v1/threads/${message.thread_id}/lease`, { holder: text("lease holder"), ttl_s: 600 });
  await api("PATCH", `/v1/threads/${message.thread_id}`, { labels: [text("thread label")] });
  const thread = `/threads/${message.thread_id}`;
  const email = (id, ...press) => at(`/emails/${id}`, ...press);
  return [
    [shown("reply of the next hop"), email(refused, "Attempts")],
    [shown("bounce"), email(bounced, "Attempts")],
    [shown("thread subject"), at(`/messages/${message.id}`), at(`/inboxes/${inbox}`), at("/threads"), at(thread)],
    [shown("Message-ID"), at(`/messages/${message.id}`, "Header")],
    [shown("file name"), at(`/messages/${message.id}`)],
    [shown("link text"), at(`/messages/${message.id}`, "Text")],
    [shown("content type"), at(`/messages/${message.id}`)],
    [shownInUrl("link URL"), at(`/messages/${message.id}`, "Show values")],
    [SCRIPT_URL, at(`/messages/${message.id}`, "Show values")],
    [shown("claim type"), at(`/needs-you/${claims.claim}`)],
    [shown("claim entity"), at(`/needs-you/${claims.claim}`)],
    [shown("claim label"), at(`/needs-you/${claims.claim}`)],
    [shown("claim key"), at(`/needs-you/${claims.keyed}`), at("/needs-you")],
    [shown("template subject"), email(templated.id), at("/emails")],
    [shown("template text"), email(templated.id, "Content")],
    [shown("subject"), email(labelled.id), at("/emails"), at("/")],
    [shown("text"), email(labelled.id, "Content")],
    [shown("tag"), email(labelled.id, "Raw")],
    [shown("file of an agent"), email(labelled.id, "Content")],
    [shown("idempotency key"), email(labelled.id), at("/keys"), at(`/keys/${encodeURIComponent(text("idempotency key"))}`)],
    [shown("call"), email(labelled.id)],
    [shown("rule name"), email(held.id, "Policy trace"), at("/setup/rules"), at(`/needs-you/${question}`), at("/needs-you")],
    [shown("question"), at("/needs-you")],
    [shown("endpoint description"), at("/webhooks"), at(`/webhooks/${endpoint}`)],
    [shown("API key name"), at("/setup/api-keys"), at("/stops"), at("/setup/audit")],
    [shown("stop reason"), at("/stops")],
    [shown("person name"), at("/setup/people")],
    [shown("client name"), at("/setup/people")],
    [shown("budget name"), at("/stops")],
    [shown("target name"), at("/setup/people")],
    [shown("inbox name"), at("/inboxes")],
    [shown("agent"), at("/inboxes")],
    [shown("lease holder"), at(thread), at("/threads")],
    [shown("thread label"), at(thread), at("/threads")],
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
    const found = await frame.evaluate(() => [globalThis.__xss, document.querySelectorAll("[onerror], img[src=x], [href^='javascript:'], main script").length]);
    assert.deepEqual(found, [undefined, 0], `${page.url()}: something of a stranger became a part of ${frame.url()}`);
  }
};

/** Opens every place once, and looks for all fields that are shown there. */
const lookAt = async ({ page, goto, picture }, table) => {
  const places = new Map();
  for (const [words, ...where] of table) for (const place of where) {
    const name = [place.path, ...place.press].join(" > ");
    if (!places.has(name)) places.set(name, { ...place, all: [] });
    places.get(name).all.push(words);
  }
  for (const [name, { path, press, all }] of [...places].sort()) {
    if (new URL(page.url()).pathname !== path) await goto(path);
    for (const label of press) await page.getByRole("tab", { name: label }).or(page.getByRole("button", { name: label, exact: true })).first().click();
    for (const words of all) await page.locator("main").getByText(words).first().waitFor().catch(() => assert.fail(`${name} does not show ${words}`));
    await unharmed(page);
    await picture(`fields-${name.replace(/[^a-z]+/gi, "-").slice(1, 60)}`, { fullPage: true });
  }
};

try {
  await refuseScripts();
  const table = await fillAll();
  await withBrowser(async (tools) => {
    const { page, goto } = tools;
    page.on("dialog", () => assert.fail("a dialog was opened"));
    await connectProgram(tools, hostile("client name"), async () => {
      await page.getByText(hostile("client name")).first().waitFor();
      await unharmed(page);
    });
    await lookAt(tools, table);
    await goto("/setup/rules");
    for (const [label, value] of [["To", "never@example.com"], ["Text", "Hi"]]) await page.getByLabel(label, { exact: true }).fill(value);
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
