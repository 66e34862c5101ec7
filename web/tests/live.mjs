// The live page: a duplicate appears by itself, the list can be paused and filtered, and a copied call never sends again.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { api, eventually, fitsWidth, PHONE, withBrowser } from "./browser.mjs";

const send = (key, subject = "Order 4821") => api("POST", "/v1/emails", { from: "agent@mailonce.test", to: "eve@example.com", subject, text: "It's here.\nThanks" }, { "idempotency-key": key });
const { MAILONCE_URL, MAILONCE_API_KEY } = process.env;

await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto("/live");
  await page.getByRole("heading", { name: "Nothing has happened yet" }).waitFor();
  await axe();
  await page.locator(".stream.live").waitFor();
  const rows = page.getByRole("list", { name: "Events" }).getByRole("listitem");
  const duplicate = rows.filter({ hasText: "email.duplicate" });

  const { id } = await send("order-4821");
  await send("order-4821");
  await duplicate.filter({ hasText: "Order 4821" }).waitFor();
  assert.match(await duplicate.innerText(), /order-4821 · 1 call stopped, nothing was sent/);
  assert.equal(await duplicate.getByRole("link").getAttribute("href"), `/emails/${id}`);

  // The copied call is the one that made the email: running it sends nothing new.
  await duplicate.getByRole("button", { name: /email.duplicate/ }).click();
  await duplicate.getByRole("button", { name: "Copy the call that made it" }).click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(command, /^curl -X POST "\$MAILONCE_URL\/v1\/emails"/);
  const { stdout } = await promisify(execFile)("bash", ["-c", command], { env: { ...process.env, MAILONCE_URL, MAILONCE_API_KEY } });
  assert.deepEqual([JSON.parse(stdout).id, JSON.parse(stdout).dedupe.outcome], [id, "replayed"]);
  for (const [language, words] of [["TypeScript", 'idempotencyKey: "order-4821"'], ["Python", 'idempotency_key="order-4821"'], ["MCP", "No MCP tool makes this call"]]) {
    await duplicate.getByRole("button", { name: language, exact: true }).click();
    await duplicate.getByText(words).waitFor();
  }
  await duplicate.getByRole("tab", { name: "Read it" }).click();
  await duplicate.getByText("get_outcome").waitFor();
  await axe();
  await picture("live-open");

  // Pause keeps the rows still. Two rows are on the page for the duplicates of the first email.
  await eventually(async () => (await duplicate.count()) === 2, "the call from the shell appears");
  await page.keyboard.press("p");
  await page.getByRole("button", { name: "Resume" }).waitFor();
  await send("order-4822", "Order 4822");
  await page.getByRole("button", { name: /Resume \(\d+ new\)/ }).waitFor();
  assert.equal(await rows.filter({ hasText: "order-4822" }).count(), 0, "the rows stay as they are");
  await page.getByRole("button", { name: /Resume/ }).click();
  await rows.filter({ hasText: "order-4822" }).first().waitFor();

  await page.getByLabel("Kind").selectOption("email.duplicate");
  await eventually(async () => (await rows.count()) === 2, "only duplicates are shown");
  await page.getByLabel("Kind").selectOption("");
  await page.getByLabel("Text").fill("4822");
  await eventually(async () => (await rows.allInnerTexts()).every((text) => text.includes("order-4822")), "only matching events are shown");

  // A reload shows the events of before, with the filter.
  await page.reload();
  await rows.filter({ hasText: "email.accepted" }).waitFor();
  await page.getByRole("heading", { level: 1 }).click();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.getByRole("tab", { name: "JSON" }).first().waitFor();
});

const intent = (entity) => ({ type: "order.shipped", entity });
const mail = (subject, more = {}) => ({ from: "agent@mailonce.test", to: "eve@example.com", subject, text: `About ${subject}.`, ...more });
const post = async (subject, more, key) => (await api("POST", "/v1/emails", mail(subject, more), key ? { "idempotency-key": key } : {})).id;

/** What each call is called below, the email that it made, and what the page offers: a call, a tool as well, or a reason. */
const sentInEveryWay = async () => {
  const day = new Date(Date.now() + 86_400_000).toISOString();
  const first = await post("Case resent", {}, "case-resent");
  const items = await api("POST", "/v1/emails/batch", [mail("Case batch")], { "idempotency-key": "case-batch" });
  await eventually(async () => /sent|delivered/.test((await api("GET", `/v1/emails/${first}`)).state), "the first version left");
  return [
    ["Case header and intent", await post("Case header and intent", { intent: intent("both") }, "case-both"), "call"],
    ["Case two people", await post("Case two people", { to: ["eve@example.com", "bob@example.com"], cc: "ann@example.com", intent: intent("two") }), "call"],
    ["Case intent", await post("Case intent", { intent: intent("one") }), "tool"],
    ["Case scheduled", await post("Case scheduled", { scheduled_at: day }, "case-scheduled"), "call"],
    ["Case resent", (await api("POST", `/v1/emails/${first}/resend`, { reason: "asked for" })).id, "tool"],
    ["Case batch", items.data[0].id, /item of a batch/],
    ["Case without a key", await post("Case without a key", { to: "carl@example.com" }), /would send the email again/],
    ["Case in a while", await post("Case in a while", { scheduled_at: "in 3 hours" }, "case-while"), /relative time/],
    ["Case file", await post("Case file", { attachments: [{ filename: "a.txt", content: "aGVsbG8=" }] }, "case-file"), /attachments/],
  ];
};

const runMcp = async (text) => {
  const response = await fetch(`${MAILONCE_URL}/mcp`, { method: "POST", body: text, headers: { authorization: `Bearer ${MAILONCE_API_KEY}`, "content-type": "application/json", accept: "application/json, text/event-stream" } });
  return JSON.stringify(await response.json());
};

const countEmails = async () => (await api("GET", "/v1/emails?limit=100")).data.length;

// Every call that the page offers is answered with the email that it made; for the others the page says why there is none.
await withBrowser(async ({ page, goto }) => {
  const cases = await sentInEveryWay();
  const count = await countEmails();
  await goto("/live?kind=email");
  const copied = async (row) => {
    await row.getByRole("button", { name: "Copy the call that made it" }).click();
    return page.evaluate(() => navigator.clipboard.readText());
  };
  for (const [name, id, offered] of cases) {
    const row = page.getByRole("list", { name: "Events" }).getByRole("listitem").filter({ hasText: /email.(accepted|held)/ }).filter({ has: page.locator(`a[href="/emails/${id}"]`) });
    await row.getByRole("button", { name: /^email/ }).click();
    if (typeof offered !== "string") {
      await row.getByText("cannot be copied").waitFor();
      assert.match(await row.innerText(), offered, name);
    } else {
      await row.getByRole("button", { name: "curl", exact: true }).click();
      const { stdout } = await promisify(execFile)("bash", ["-c", await copied(row)], { env: { ...process.env, MAILONCE_URL, MAILONCE_API_KEY } });
      assert.equal(JSON.parse(stdout).id, id, `${name}: ${stdout}`);
      await row.getByRole("button", { name: "MCP", exact: true }).click();
      if (offered === "tool") assert.ok((await runMcp(await copied(row))).includes(id), name);
      else await row.getByText("No MCP tool makes this call").waitFor();
    }
    await row.getByRole("button", { name: /^email/ }).click();
  }
  assert.equal(await countEmails(), count, "no call sent another email");
});

await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto("/live?q=order-4821");
  await page.getByText("email.duplicate").first().waitFor();
  await page.getByRole("button", { name: /email.duplicate/ }).first().click();
  await page.getByText("Idempotency-Key").waitFor();
  await fitsWidth(page);
  await axe();
  await picture("live-phone");
}, { viewport: PHONE, colorScheme: "dark" });

// Questions and stops have names in the list and in the audit log, and not only ids.
await withBrowser(async ({ page, goto }) => {
  const [question, inbox] = ["May I refund order 4821?", "agent@mailonce.test"];
  const asked = await api("POST", "/v1/escalations", { question });
  await api("POST", `/v1/escalations/${asked.id}/resolve`, { as: "release", rev: asked.rev });
  const stop = await api("POST", "/v1/stops", { scope: { inbox } });
  await api("DELETE", `/v1/stops/${stop.id}`);
  const seen = async (list, expected) => {
    const rows = page.getByRole("list", { name: list }).getByRole("listitem");
    for (const [type, name] of expected) await rows.filter({ hasText: type }).filter({ hasText: name }).first().waitFor();
  };
  await goto("/live");
  await seen("Events", [["escalation.opened", question], ["escalation.resolved", question], ["stop.created", inbox], ["stop.ended", inbox]]);
  await goto("/setup/audit");
  await seen("Audit entries", [["escalation.decided", question], ["stop.created", inbox]]);
});

// All pages share one stream: a browser allows few connections to a server.
await withBrowser(async ({ page, goto }) => {
  await page.addInitScript(() => {
    const open = new Set();
    globalThis.openStreams = open;
    globalThis.EventSource = class extends EventSource {
      constructor(...given) {
        super(...given);
        open.add(this);
      }

      close() {
        super.close();
        open.delete(this);
      }
    };
  });
  await goto("/live");
  await page.locator(".stream.live").waitFor();
  const first = await page.evaluateHandle(() => [...globalThis.openStreams][0]);
  for (const name of ["Emails", "Keys", "Live"]) {
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true }).click();
    await page.getByRole("heading", { name, level: 1, exact: true }).waitFor();
    await page.locator(".stream.live").waitFor();
  }
  const isSame = await page.evaluate((stream) => globalThis.openStreams.size === 1 && globalThis.openStreams.has(stream), first);
  assert.ok(isSame, "one stream, the one that was opened first");
});
