// Approval links where people find them: in a mail that really arrives, in a Slack card and in the JSON of a webhook. They
// decide once on a phone without scripts, and say so when they cannot. Starts a server of its own, with a relay.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freeAddress, startDev } from "./server.mjs";
import { startCardReceiver, startMailSink } from "./sink.mjs";

const folder = await mkdtemp(join(tmpdir(), "mailonce-web-links-"));
const sink = await startMailSink();
const cards = await startCardReceiver(folder);
const MAILONCE_CONFIG = join(folder, "mailonce.toml");
await writeFile(MAILONCE_CONFIG, `${cards.config}\n${sink.config}`);
const http = await freeAddress();
let server = await startDev({ MAILONCE_CONFIG }, { folder, http });
Object.assign(process.env, server.env);
const { api, eventually, fitsWidth, PHONE, withBrowser } = await import("./browser.mjs");
const { deliver } = await import("./smtp.mjs");
const { MAILONCE_URL } = process.env;

const LINK = new RegExp(`${MAILONCE_URL}/a/\\S+`, "g");
const email = (id) => api("GET", `/v1/emails/${id}`);
const sent = (subject) => sink.mails.filter((mail) => mail.subject === subject && mail.to.includes("eve@example.com")).length;

const hold = async (subject) => {
  const held = await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject, text: `Dear Eve,\n\nplease pay for ${subject}.\n` });
  assert.equal(held.state, "held");
  return held.id;
};

/** The link in the card about `words` that was posted to `path`. */
const slackLink = (words) => cards.posts.find(({ path, json }) => path === "/slack" && json.text.includes(words))?.json.blocks[1].elements[0].url;
const webhookLink = (words) => cards.posts.find(({ path, json }) => path === "/webhook" && json.description.includes(words))?.json.url;
const mailLink = (words) => {
  const notice = sink.mails.find(({ to, text }) => to.includes("ada@people.example") && text.includes(words));
  const links = notice?.text.match(LINK) ?? [];
  assert.ok(!notice || links.length === 1, notice?.text);
  return links[0];
};
const arrived = (find, words) => eventually(() => find(words), `the link about ${words}`);

/** What mail scanners and chat programs do with a link. It answers as for a person, and changes nothing. */
const scan = async (link, id) => {
  const [{ data: before }, { rev }] = [await api("GET", "/v1/escalations?state=open"), await email(id)];
  for (const method of ["GET", "HEAD", "GET"]) {
    const response = await fetch(link, { method, headers: { "user-agent": "scanner" } });
    assert.equal(response.status, 200, method);
    assert.equal((await response.text()).includes("Approve and send"), method === "GET");
  }
  const after = (await api("GET", "/v1/escalations?state=open")).data;
  assert.deepEqual(after.map((one) => [one.id, one.rev]), before.map((one) => [one.id, one.rev]), "no question changed");
  assert.deepEqual([(await email(id)).state, (await email(id)).rev], ["held", rev]);
};

const press = (page) => page.getByRole("button", { name: "Approve and send" }).click();
const says = (page, heading) => page.getByRole("heading", { level: 1, name: heading, exact: true }).waitFor();

/** Two windows show the link; one decides, and the other one says that it came too late. */
const approveOnce = async ({ page, context, picture }, subject, id, link, decider) => {
  await scan(link, id);
  const second = await context.newPage();
  for (const window of [page, second]) await window.goto(link);
  const text = await page.locator("main").innerText();
  for (const part of ["Approve this email?", subject, "eve@example.com", `please pay for ${subject}.`, `You decide as ${decider}.`]) assert.ok(text.includes(part), `${part}: ${text}`);
  await fitsWidth(page);
  assert.equal(sent(subject), 0, "looking sends nothing");
  await press(page);
  await says(page, "Decided: Approve and send");
  await fitsWidth(page);
  await picture(`approval-link-${decider.replace("#", "")}`, { fullPage: true });
  await press(second);
  await says(second, "Decided: Approve and send");
  await second.getByText(`${decider} decided at`).waitFor();
  assert.equal((await second.goto(link)).status(), 410);
  await second.close();
  await eventually(() => sent(subject) === 1, `${subject} leaves`);
};

/** Whoever looked before an edit does not send what was edited. */
const edited = async ({ page }, id) => {
  await page.goto(await arrived(slackLink, "Invoice 4"));
  const [asked] = (await api("GET", "/v1/escalations?state=open")).data.filter(({ about }) => about.email === id);
  await api("POST", `/v1/escalations/${asked.id}/resolve`, { as: "edit", rev: asked.rev, edit: { subject: "Invoice 4, corrected", text: "Nothing to pay." } });
  await press(page);
  await says(page, "Decided: Send the edited email");
  await page.getByText("A program with an API key decided at").waitFor();
  await eventually(() => sent("Invoice 4, corrected") === 1, "the edited email leaves");
};

/** The page warned of the address in a message that is gone now, so it would show something else. */
const changed = async ({ page }) => {
  await api("POST", "/v1/inboxes", { username: "shop" });
  await deliver({ from: "ann@people.example", to: "shop@mailonce.test", raw: "From: ann@people.example\nReply-To: x@elsewhere.example\nTo: shop@mailonce.test\nMessage-ID: <1@people.example>\nSubject: Invoice 5\n\nWhat is it?\n" });
  const message = await eventually(async () => (await api("GET", "/v1/inboxes/shop@mailonce.test/messages")).data[0], "the message");
  const reply = await api("POST", `/v1/messages/${message.id}/reply`, { text: "It is paid." });
  assert.equal(reply.state, "held");
  const link = await arrived(webhookLink, "Invoice 5");
  await page.goto(link);
  await page.getByText("x@elsewhere.example").first().waitFor();
  await api("DELETE", `/v1/messages/${message.id}`);
  await press(page);
  await says(page, "The email has changed.");
  assert.equal((await page.goto(link)).status(), 409);
  assert.equal(await page.locator("form").count(), 0);
  assert.equal((await email(reply.id)).state, "held");
};

const forged = async ({ page }, used) => {
  const [id, mac] = new URL(used).pathname.slice("/a/".length).split("-");
  const [otherId] = new URL(slackLink("Invoice 2")).pathname.slice("/a/".length).split("-");
  const last = mac.endsWith("0") ? "1" : "0";
  for (const token of [`${id}-${mac.slice(0, -1)}${last}`, `${otherId}-${mac}`, `${id}-`, id, `${"0".repeat(32)}-${"0".repeat(64)}`]) {
    const shown = await page.goto(`${MAILONCE_URL}/a/${token}`);
    assert.equal(shown.status(), 404, token);
    await says(page, "This link does not work.");
    const posted = await fetch(shown.url(), { method: "POST", body: new URLSearchParams({ as: "release", rev: "1" }), headers: { origin: MAILONCE_URL } });
    assert.equal(posted.status, 404, token);
  }
};

/** Starts the server again, as if four days had passed. Only a binary with the feature `failpoints` can do this. */
const fourDaysLater = async () => {
  await server.stop();
  server = await startDev({ MAILONCE_CONFIG, MAILONCE_CLOCK_OFFSET_MS: String(96 * 3_600_000) }, { folder, http });
  const { created_at: created } = await api("POST", "/v1/escalations", { question: "Which day is it?", entity: "day" });
  return Date.parse(created) > Date.now() + 3_600_000;
};

/** A form that was opened in time, and sent too late. */
const expired = async ({ page }, id, target) => {
  const link = await arrived(webhookLink, "Invoice 6");
  await page.goto(link);
  if (!(await fourDaysLater())) {
    console.log("approval-links: the clock of this binary cannot be moved, so the link ends with its target");
    await api("DELETE", `/v1/notification-targets/${target}`);
  }
  await press(page);
  await says(page, "This link has expired.");
  assert.equal((await page.goto(link)).status(), 410);
  assert.equal((await email(id)).state, "held");
};

try {
  await api("POST", "/v1/rules", { name: "invoices", direction: "outbound", actions: [{ type: "approve" }], match: { conditions: [{ field: "subject", operator: "contains", value: "Invoice" }] } });
  await api("POST", "/v1/people", { name: "Ada", role: "approver", address: "ada@people.example" });
  await api("PATCH", "/v1/settings", { approval_emails: { from: "desk@mailonce.test" } });
  await api("POST", "/v1/notification-targets", { name: "#slack", kind: "slack", url: `${cards.url}/slack` });
  const target = await api("POST", "/v1/notification-targets", { name: "#webhook", kind: "webhook", url: `${cards.url}/webhook` });
  await withBrowser(async (tools) => {
    const first = await hold("Invoice 1");
    const link = await arrived(mailLink, "Invoice 1");
    for (const find of [slackLink, webhookLink]) await scan(await arrived(find, "Invoice 1"), first);
    await approveOnce(tools, "Invoice 1", first, link, "Ada");
    assert.match(await (await fetch(slackLink("Invoice 1"))).text(), /<strong>Ada<\/strong> decided/);
    // Ada gets the mail about these minutes later, together.
    const [second, third, fourth, sixth] = await Promise.all(["Invoice 2", "Invoice 3", "Invoice 4", "Invoice 6"].map(hold));
    await approveOnce(tools, "Invoice 2", second, await arrived(slackLink, "Invoice 2"), "#slack");
    await approveOnce(tools, "Invoice 3", third, await arrived(webhookLink, "Invoice 3"), "#webhook");
    await edited(tools, fourth);
    await changed(tools);
    await forged(tools, link);
    await expired(tools, sixth, target.id);
  }, { viewport: PHONE, javaScriptEnabled: false, signedIn: false, allow: [/status of (404|409|410)/] });
  const left = sink.mails.filter(({ to }) => !to.includes("ada@people.example")).map(({ to, subject }) => `${to} ${subject}`).sort();
  assert.deepEqual(left, ["Invoice 1", "Invoice 2", "Invoice 3", "Invoice 4, corrected"].map((subject) => `eve@example.com ${subject}`), "every email left exactly once");
  assert.equal(sink.mails.filter(({ to, text }) => to.includes("ada@people.example") && text.includes("Invoice 1")).length, 1, "one notice");
} finally {
  await server.stop();
  cards.close();
  sink.close();
  await rm(folder, { recursive: true, force: true });
}
