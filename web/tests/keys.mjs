// What was stopped and why, the inspector of a key, and the differences between a request and the email of its key.
import assert from "node:assert/strict";
import { api, eventually, fitsWidth, PHONE, withBrowser } from "./browser.mjs";
import { deliver } from "./smtp.mjs";

const mail = { from: "agent@mailonce.test", to: "eve@example.com", subject: "Order 4821", text: "Thank you.\nIt leaves tomorrow." };
const intent = { type: "order.shipped", entity: "order_4821" };
const KEY = "order/4821 <b>x</b>";
const send = (body, headers) => api("POST", "/v1/emails", body, headers);

await send(mail, { "idempotency-key": KEY });
for (let call = 0; call < 3; call += 1) await send(mail, { "idempotency-key": KEY, "mailonce-call-id": "call_7" });
await assert.rejects(send({ ...mail, subject: "Order 4822" }, { "idempotency-key": KEY }), /key_mismatch/);
await send({ ...mail, subject: "On its way", intent });
await send({ ...mail, subject: "It is on its way", intent });

const duplicates = async ({ page, goto, axe, picture }) => {
  await goto("/duplicates");
  await page.getByText("repeats that sent nothing").waitFor();
  await page.locator(".duplicates-number", { hasText: "5" }).waitFor();
  const rows = page.getByRole("list", { name: "Emails with duplicates" }).getByRole("listitem");
  const order = rows.filter({ hasText: "4× stopped" });
  await order.getByRole("button").click();
  await order.getByText("Same key, different email: refused").waitFor();
  assert.equal(await order.getByText("Same key, same email").count(), 3);
  await axe();
  await picture("duplicates");
  await page.getByRole("tab", { name: "Received" }).click();
  await page.getByRole("heading", { name: "No mail arrived twice yet" }).waitFor();
  const raw = "From: ann@example.com\nTo: agent@mailonce.test\nSubject: Twice\nMessage-ID: <twice@example.com>\n\nHello\n";
  await deliver({ from: "ann@example.com", raw });
  await eventually(async () => (await api("GET", "/v1/inboxes/agent@mailonce.test/messages")).data.length, "the message");
  await deliver({ from: "ann@example.com", raw });
  await page.getByText("The same delivery again").waitFor();
};

const compare = async (page) => {
  const body = page.getByLabel("Body of the request");
  const { to, ...rest } = JSON.parse(await body.inputValue());
  await body.fill(JSON.stringify({ ...rest, to: [to, "bob@example.com"], text: mail.text.replace("tomorrow", "today") }));
  await page.getByRole("button", { name: "Compare" }).click();
  const result = page.getByRole("group", { name: "Result" });
  await result.getByText("422 key_mismatch").waitFor();
  assert.match(await result.innerText(), /differs in 2 fields/);
  assert.deepEqual((await result.locator("h3").allInnerTexts()).map((text) => text.replace(/\s+/g, " ")), ["to differs", "text differs"]);
  const text = result.getByRole("group", { name: "First email and request: text" });
  assert.match(await text.locator(".removed").innerText(), /It leaves tomorrow/);
  assert.match(await text.locator(".added").innerText(), /It leaves today/);
  assert.match(await text.locator(".same").innerText(), /Thank you/);
};

const inspect = async ({ page, goto, axe, picture }) => {
  await goto("/keys");
  await page.getByRole("row").filter({ hasText: "order.shipped order_4821" }).waitFor();
  await page.getByLabel("Begins with").fill("order/");
  await page.getByRole("link", { name: KEY }).click();
  await page.getByRole("heading", { level: 1, name: KEY }).waitFor();
  await page.getByText("4 duplicate calls").waitFor();
  assert.equal(await page.getByText("call_7").count(), 3);
  await compare(page);
  await axe();
  await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
  await picture("key-mismatch");
  // Looking is free: the comparison was neither counted nor sent.
  assert.equal((await api("GET", `/v1/keys/${encodeURIComponent(KEY)}`)).hits, 4);

  await page.getByRole("button", { name: "Remember longer…" }).click();
  await page.getByRole("dialog").getByLabel("Remember it for").selectOption("180d");
  await page.getByRole("dialog").getByRole("button", { name: "Remember", exact: true }).click();
  await page.getByText("180d after the email ended").waitFor();
  await page.getByRole("button", { name: "Forget…" }).click();
  await page.getByRole("button", { name: "Forget key" }).click();
  await page.getByText("nothing: it was forgotten").waitFor();
  await goto(`/keys/${encodeURIComponent(KEY)}`);
  await page.getByText("nothing: it was forgotten").waitFor();
};

const derived = async ({ page, goto }) => {
  await goto("/keys?prefix=i1_");
  await page.getByRole("link", { name: /^i1_/ }).click();
  await page.getByText("This browser computed the same key.").waitFor();
  await page.getByText("Same key, other words: the first email counts").waitFor();
  await goto("/keys?tool=compare");
  await page.getByLabel("Body of the request").fill(JSON.stringify({ ...mail, to: "nobody-yet@example.org", subject: "Something new", text: "Never written before." }));
  await page.getByLabel("Idempotency key").fill("a-new-key");
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.getByText("accepted as a new email").waitFor();
  await page.getByLabel("Body of the request").fill("{ not json");
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.getByText("This is not JSON").waitFor();
};

await withBrowser(async (browser) => {
  await duplicates(browser);
  await inspect(browser);
  await derived(browser);
});
await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto("/duplicates");
  await page.getByRole("list", { name: "Emails with duplicates" }).getByRole("button").first().click();
  await page.getByText("Why nothing was sent").waitFor();
  await fitsWidth(page);
  await axe();
  await picture("duplicates-phone");
  await goto("/keys?prefix=i1_");
  await page.getByRole("link", { name: /^i1_/ }).click();
  await page.getByRole("button", { name: "Compare" }).click();
  await page.getByText("The request is the same email.").waitFor();
  await fitsWidth(page);
  await axe();
}, { viewport: PHONE, colorScheme: "dark" });
