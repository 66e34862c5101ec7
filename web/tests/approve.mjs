// Held emails in the window of a phone: what will be sent is shown, then approved, edited and rejected in a row. On a
// desktop several are approved at once, by keyboard.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { api, eventually, fitsWidth, PHONE, withBrowser } from "./browser.mjs";

const hold = async (subject, more = {}) => {
  const email = await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject, text: `Dear Eve,\n\nplease pay for ${subject}.\n`, ...more });
  assert.equal(email.state, "held");
  return email.id;
};
const state = async (id) => (await api("GET", `/v1/emails/${id}`)).state;

await api("POST", "/v1/rules", {
  name: "invoices", direction: "outbound", actions: [{ type: "approve" }], match: { conditions: [{ field: "subject", operator: "contains", value: "Invoice" }] },
});

const INVOICE = Buffer.from([0x25, 0x50, 0x44, 0x46, 0x00, 0xff]);

/** What people approve includes the attachment: the link gives exactly its bytes. */
const downloadsInvoice = async (page) => {
  const link = page.getByRole("link", { name: /^invoice\.pdf/ });
  const [download] = await Promise.all([page.waitForEvent("download"), link.click()]);
  assert.equal(download.suggestedFilename(), "invoice.pdf");
  assert.deepEqual(await readFile(await download.path()), INVOICE);
};

const onPhone = async ({ page, goto, axe, picture }) => {
  const rejected = await hold("Invoice 3", { text: "Pay \u202e001\u202c euros." });
  const edited = await hold("Invoice 2");
  const approved = await hold("Invoice 1", {
    from: "Your Bank <agent@mailonce.test>", headers: { "X-Priority": "1" }, cc: ["bob@example.com"], reply_to: ["pay@elsewhere.example"], attachments: [{ filename: "invoice.pdf", content: INVOICE.toString("base64") }],
    html: '<p style="color:red" onclick="alert(1)">Dear Eve, please pay <b>900</b>.</p><img src="https://tracker.example/x.png"><script>alert(1)</script>',
  });
  await goto("/needs-you");
  await downloadsInvoice(page);
  await page.getByRole("link", { name: "Invoice 1" }).click();
  await page.getByRole("button", { name: "Approve and send" }).waitFor();
  await downloadsInvoice(page);
  const text = await page.locator("main").innerText();
  for (const part of ["Your Bank <agent@mailonce.test>", "X-Priority: 1", "eve@example.com", "bob@example.com", "pay@elsewhere.example", "invoice.pdf", "please pay for Invoice 1", "Look twice", "Replies go to another organization"]) {
    assert.ok(text.includes(part), `${part}: ${text}`);
  }
  const frame = page.frameLocator("iframe");
  assert.ok((await frame.locator("body").innerText()).includes("900"));
  assert.equal(await frame.locator("script").count(), 0);
  await fitsWidth(page);
  await axe();
  await picture("approve-phone");
  await page.getByRole("button", { name: "Approve and send" }).click();
  await page.getByRole("heading", { name: "Invoice 2", level: 1 }).waitFor();
  assert.notEqual(await state(approved), "held");

  await page.getByRole("button", { name: "Edit first" }).click();
  await page.getByLabel("Subject").fill("Invoice 2, corrected");
  await page.getByLabel("Text").fill("Dear Eve,\n\nno need to pay.\n");
  const diff = await page.getByRole("group", { name: "Changes" }).innerText();
  assert.ok(diff.includes("Invoice 2, corrected") && diff.includes("please pay for Invoice 2."), diff);
  await fitsWidth(page);
  await axe();
  await picture("approve-phone-edit", { fullPage: true });
  await page.getByRole("button", { name: "Send the edited email" }).click();
  await page.getByRole("heading", { name: "Invoice 3", level: 1 }).waitFor();
  const next = await eventually(async () => (await api("GET", `/v1/emails/${edited}`)).resent_as, "the edited version");
  assert.equal((await api("GET", `/v1/emails/${next}`)).subject, "Invoice 2, corrected");

  await page.getByText("Pay [U+202E]001[U+202C] euros.").first().waitFor();
  await page.getByRole("button", { name: "Reject…" }).click();
  await page.getByLabel("Reason").fill("wrong customer");
  await axe();
  await page.getByRole("dialog").getByRole("button", { name: "Reject" }).click();
  await page.getByText("Nothing waits for you").waitFor();
  await eventually(async () => (await state(rejected)) === "cancelled", "the rejected email is cancelled");
  const { data } = await api("GET", "/v1/escalations?state=resolved&limit=100");
  const { decision } = await api("GET", `/v1/escalations/${data.find(({ about }) => about.email === rejected).id}`);
  assert.deepEqual([decision.as, decision.reason], ["reject", "wrong customer"], "the agent reads the reason that was typed");
  await fitsWidth(page);

  await goto(`/emails/${approved}`);
  await downloadsInvoice(page);
};

const byKeyboard = async ({ page, goto, axe, picture }) => {
  const ids = [await hold("Invoice 11"), await hold("Invoice 12"), await hold("Invoice 13")];
  await goto("/needs-you");
  for (const name of ["Invoice 11", "Invoice 12", "Invoice 13"]) await page.getByRole("link", { name }).waitFor();
  assert.equal(await page.getByText("please pay for").count(), 3, "every body is visible");
  await page.getByRole("button", { name: "Held 3" }).waitFor();
  await page.getByRole("link", { name: "Needs you 3 waiting" }).waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByRole("region", { name: "Selected emails" }).waitFor();
  await axe();
  await picture("approve-several");
  await page.getByRole("button", { name: "Approve 2" }).click();
  await page.getByRole("link", { name: "Invoice 13" }).waitFor({ state: "detached" });
  assert.equal((await Promise.all(ids.map(state))).filter((one) => one === "held").length, 1, "two are approved");
  await page.keyboard.press("j");
  await page.keyboard.press("a");
  await page.getByText("Nothing waits for you").waitFor();
  for (const id of ids) await eventually(async () => (await state(id)) !== "held", "each is released");
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await axe();
};

/** Holding the key, and pressing it again at once, decides about nothing that was not looked at. */
const heldDown = async ({ page, goto }) => {
  const ids = [await hold("Invoice 21"), await hold("Invoice 22"), await hold("Invoice 23")];
  const held = async () => (await Promise.all(ids.map(state))).filter((one) => one === "held").length;
  await goto("/needs-you");
  await page.getByRole("link", { name: /Invoice 2\d/ }).first().click();
  const approve = page.getByRole("button", { name: "Approve and send" });
  await approve.waitFor();
  const title = () => page.getByRole("heading", { level: 1 }).innerText();
  const first = await title();
  await eventually(() => approve.isEnabled(), "the first can be approved");
  for (let times = 0; times < 12; times += 1) await page.keyboard.down("a");
  await eventually(async () => (await title()) !== first && (await approve.count()) === 1, "the next one is shown");
  for (let times = 0; times < 12; times += 1) await page.keyboard.down("a");
  await page.keyboard.up("a");
  await eventually(() => approve.isEnabled(), "the next can be approved");
  assert.equal(await held(), 2, "one press approves one email");
  // A fresh press on what was shown.
  await page.keyboard.press("a");
  await eventually(async () => (await held()) === 1, "the second is approved");
};

/** A decision leads to the question after it. Those before it, which were skipped, come last. */
const inOrder = async ({ page, goto }) => {
  const subjects = ["Invoice 61", "Invoice 62", "Invoice 63", "Invoice 64"];
  const ids = [];
  for (const subject of subjects) ids.push(await hold(subject));
  await goto("/needs-you");
  const links = page.getByRole("link", { name: /^Invoice 6\d$/ });
  await links.nth(3).waitFor();
  const titles = await links.allInnerTexts();
  const isShown = (title) => page.getByRole("heading", { name: title, level: 1 }).waitFor();
  const approve = () => page.getByRole("button", { name: "Approve and send" }).click();
  await links.nth(1).click();
  await isShown(titles[1]);
  await approve();
  await isShown(titles[2]);
  await page.keyboard.press("n");
  await isShown(titles[3]);
  await approve();
  await isShown(titles[0]);
  for (const title of [titles[0], titles[2]]) await api("POST", `/v1/emails/${ids[subjects.indexOf(title)]}/cancel`);
};

/** The HTML can be edited, too. A part that was not changed is left out unless the person keeps it. */
const editHtml = async ({ page, goto }) => {
  const id = await hold("Invoice 31", { html: "<p>Please pay <b>900</b> at once.</p>" });
  await goto("/needs-you");
  await page.getByRole("link", { name: "Invoice 31" }).click();
  await page.getByText(/HTML part has words that the text part lacks.*900/).first().waitFor();
  await page.getByRole("button", { name: "Edit first" }).click();
  await page.getByLabel("Text", { exact: true }).fill("Dear Eve,\n\nplease pay 90.\n");
  await page.getByText("The HTML part is left out").waitFor();
  await page.getByLabel("Send the unchanged HTML part, too").check();
  await page.getByText("The HTML part is sent as it was.").waitFor();
  await page.getByLabel("HTML", { exact: true }).fill("<p>Dear Eve, please pay <b>90</b>.</p><script>alert(1)</script>");
  await page.frameLocator("iframe").getByText("90", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Send the edited email" }).click();
  const next = await eventually(async () => (await api("GET", `/v1/emails/${id}`)).resent_as, "the edited version");
  const { text, html } = await api("GET", `/v1/emails/${next}`);
  assert.ok(text.includes("pay 90.") && html.includes("<b>90</b>"), JSON.stringify({ text, html }));
};

const COLORED = '<table bgcolor="#ffeecc"><tr><td>Colored by its author</td></tr></table>';

/** The height of the mail's frame, whether it scrolls, and the color of its paper. */
const frameOf = async (page) => {
  const { height } = await page.locator("iframe").boundingBox();
  return page.frameLocator("iframe").locator("html").evaluate((html, height) => {
    const paper = getComputedStyle(html.ownerDocument.body).backgroundColor;
    return { height, scrolls: html.scrollHeight > html.clientHeight, paper };
  }, height);
};

/** The frame of a mail is as high as the mail, up to a limit, and dark in the dark unless the mail has colors. */
const frames = (dark) => async ({ page, goto }) => {
  const white = "rgb(255, 255, 255)";
  const short = await hold("Invoice 41", { html: "<p>Dear Eve,</p><p>as a thank you we offer <b>20 %</b> on your next order.<br>The code is THANKS20.</p><p>Your shop</p>" });
  const long = await hold("Invoice 42", { html: "<p>One more line.</p>".repeat(60) });
  const colored = await hold("Invoice 43", { html: COLORED });
  const open = async (id) => {
    await goto(`/emails/${id}`);
    await page.locator("iframe").waitFor();
    await eventually(async () => (await frameOf(page)).height < 640 || id === long, "the height of the frame is set");
    return frameOf(page);
  };
  const mail = await open(short);
  assert.ok(mail.height < 240 && !mail.scrolls, JSON.stringify(mail));
  assert.equal(mail.paper === white, !dark, mail.paper);
  const newsletter = await open(long);
  assert.ok(newsletter.height === 640 && newsletter.scrolls, JSON.stringify(newsletter));
  assert.equal((await open(colored)).paper, white);
  for (const id of [short, long, colored]) await api("POST", `/v1/emails/${id}/cancel`);
};

/** The way of an email shows how long it was held. */
const heldRow = async ({ page, goto }) => {
  const id = await hold("Invoice 51");
  await goto(`/emails/${id}`);
  const row = page.locator(".email-waterfall li").filter({ has: page.getByText("Held", { exact: true }) });
  await row.getByText("for a person to decide").waitFor();
  const { data } = await api("GET", "/v1/escalations?state=open&limit=100");
  const { id: escalation } = data.find(({ about }) => about.email === id);
  const { rev, email: { digest } } = await api("GET", `/v1/escalations/${escalation}`);
  await api("POST", `/v1/escalations/${escalation}/resolve`, { as: "release", rev, digest });
  await row.getByText("until the first attempt").waitFor();
  const lengths = await row.locator(".email-row-time").innerText();
  assert.match(lengths, /^[\d.]+ (ms|s|min)$/);
};

await withBrowser(onPhone, { viewport: PHONE });
await withBrowser(byKeyboard, { colorScheme: "dark" });
await withBrowser(async (browser) => {
  await inOrder(browser);
  await heldDown(browser);
});
await withBrowser(editHtml);
await withBrowser(frames(false));
await withBrowser(frames(true), { colorScheme: "dark" });
await withBrowser(heldRow);
