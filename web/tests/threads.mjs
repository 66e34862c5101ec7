// A conversation: an agent holds the thread, a person takes over and replies once.
import assert from "node:assert/strict";
import { api, eventually, fitsWidth, PHONE, withBrowser } from "./browser.mjs";
import { deliver } from "./smtp.mjs";

const from = "ann@example.com";
const write = (id, text, more = "") => deliver({ from, raw: `From: Ann Lee <${from}>\nTo: agent@mailonce.test\nSubject: When do you open?\nMessage-ID: <${id}@example.com>\n${more}\n${text}\n` });
await write("ann-1", "When do you open on Saturday?");
const message = await eventually(async () => (await api("GET", `/v1/inboxes/agent@mailonce.test/messages?from=${from}`)).data[0], "the message");
const thread = `/v1/threads/${message.thread_id}`;
const { token } = await api("POST", `${thread}/lease`, { holder: "agent-7 <b>x</b>", ttl_s: 600 });

const takeOver = async ({ page, goto, axe, picture }) => {
  await goto("/threads");
  await page.getByText("agent-7 <b>x</b>").waitFor();
  await page.getByRole("table", { name: "Threads" }).getByText("agent@mailonce.test").waitFor();
  await axe();
  await page.getByRole("link", { name: /When do you open/ }).click();
  await page.getByText("When do you open on Saturday?").first().waitFor();
  const lease = page.locator("section", { has: page.getByRole("heading", { name: "Lease" }) });
  await lease.getByText("held").waitFor();
  await page.getByRole("textbox", { name: "Text" }).fill("At nine.");
  await page.getByRole("button", { name: "Send reply" }).click();
  await page.getByText("You do not hold the lease of this thread").waitFor();
  await axe();
  await picture("thread-held", { fullPage: true });
  await lease.getByRole("button", { name: "Take over…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Take over" }).click();
  await lease.getByText("free").waitFor();
  await assert.rejects(api("POST", `/v1/messages/${message.id}/reply`, { text: "At eight.", lease: token }), /409/);
};

const replyOnce = async ({ page, picture }) => {
  // The draft survived the refusal, and two clicks send one reply.
  assert.equal(await page.getByRole("textbox", { name: "Text" }).inputValue(), "At nine.");
  await page.getByRole("button", { name: "Send reply" }).dblclick();
  await page.getByText("The reply was accepted and will be sent once.").waitFor();
  await page.getByRole("article", { name: `Email to ${from}` }).getByText("At nine.").waitFor();
  assert.equal((await api("GET", thread)).email_count, 1);
  await page.getByText("1 of 3").waitFor();

  // The other direction arrives by itself.
  await write("ann-2", "And on Sunday?", "In-Reply-To: <ann-1@example.com>\nReferences: <ann-1@example.com>\n");
  await page.getByText("And on Sunday?").first().waitFor();
  await picture("thread", { fullPage: true });
};

/** A message that arrives while a person writes changes neither the target nor what counts as read. */
const writeMeanwhile = async ({ page }) => {
  const target = page.getByLabel("To the message");
  const second = await target.inputValue();
  await page.getByRole("textbox", { name: "Text" }).fill("Not on Sunday.");
  await write("ann-3", "And on Monday?", "In-Reply-To: <ann-2@example.com>\nReferences: <ann-1@example.com> <ann-2@example.com>\n");
  await page.getByText("A new message came while you wrote.").waitFor();
  assert.equal(await target.inputValue(), second);
  await page.getByRole("button", { name: "Send reply" }).click();
  await page.getByRole("alert").getByText("newer_message").waitFor();
  await page.getByRole("button", { name: "I have read it" }).click();
  await page.getByText("A new message came while you wrote.").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Send reply" }).click();
  await page.getByRole("article", { name: `Email to ${from}` }).getByText("Not on Sunday.").waitFor();
  const sent = (await api("GET", thread)).entries.filter(({ type }) => type === "email").map(({ email }) => email.reply_to_message);
  assert.deepEqual(sent, [message.id, second]);
};

const organize = async ({ page }) => {
  await page.getByLabel("New label").fill("<i>opening</i>");
  await page.getByRole("button", { name: "Add" }).click();
  await page.getByRole("button", { name: "Remove label <i>opening</i>" }).waitFor();
  await page.getByRole("button", { name: "Mark as handled" }).click();
  await page.getByRole("button", { name: "Handled", exact: true }).waitFor();
  const { labels, handled_at: handledAt } = await api("GET", thread);
  assert.deepEqual(labels, ["<i>opening</i>"]);
  assert.ok(handledAt);
};

await withBrowser(async (browser) => {
  await takeOver(browser);
  await replyOnce(browser);
  await writeMeanwhile(browser);
  await organize(browser);
}, { allow: [/status of 409.*\/reply/] });
await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto(`/threads/${message.thread_id}`);
  await page.getByText("And on Sunday?").first().waitFor();
  await fitsWidth(page);
  await axe();
  await picture("thread-phone", { fullPage: true });
}, { viewport: PHONE, colorScheme: "dark" });
