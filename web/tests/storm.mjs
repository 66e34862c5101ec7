// The button sends the same email 50 times at once; one email is accepted, and the page draws each call.
import assert from "node:assert/strict";
import { api, eventually, SLOW_MS, withBrowser } from "./browser.mjs";

await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto("/");
  await page.getByRole("button", { name: "Send it 50 times" }).click();
  await page.getByText("duplicates stopped").waitFor();
  const tiles = await page.locator(".home-tile").allInnerTexts();
  assert.deepEqual(tiles.map((text) => text.replace(/\s+/g, " ")), ["50 calls", "1 email accepted", "49 duplicates stopped"]);
  assert.equal(await page.locator(".home-storm rect").count(), 50);
  assert.equal(await page.locator(".home-storm rect.first").count(), 1);
  await axe();
  await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
  await picture("storm");
  const { data } = await api("GET", "/v1/emails");
  assert.equal(data.length, 1, "one email exists");
  await eventually(async () => (await api("GET", `/v1/emails/${data[0].id}`)).suppressed === 49, "49 suppressed calls");
  await page.getByRole("link", { name: "See the email and its callers" }).click();
  await page.getByText("49 duplicates stopped").waitFor();
  await page.getByText("29 earlier duplicates").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.tagName), "H1", "the focus moves to the heading");
  // The latest 20 calls are drawn, those of a burst in one row, and each in a row of its own on demand.
  const duplicates = page.locator(".email-waterfall li.duplicate");
  assert.equal(await duplicates.locator(".email-bar").count(), 20);
  assert.ok((await duplicates.count()) < 20, "a burst is one row");
  await page.getByRole("button", { name: "Show each call" }).click();
  await eventually(async () => (await duplicates.count()) === 20, "a row for each call");
  const heights = await page.locator(".email-waterfall li").evaluateAll((rows) => rows.map((row) => row.clientHeight));
  assert.ok(Math.max(...heights) < 1.5 * Math.min(...heights), `each row is one line: ${heights}`);
  await page.getByRole("button", { name: "Group repeated calls" }).click();
  await axe();
  await picture("storm-email", { fullPage: true });
});

// While mail flows, the list follows it and the statistics, which cost the server more, are asked for rarely.
await withBrowser(async ({ page, goto }) => {
  const asked = { list: 0, stats: 0 };
  page.on("request", (request) => {
    const { pathname } = new URL(request.url());
    if (pathname === "/v1/stats") asked.stats += 1;
    if (pathname === "/v1/emails" && request.method() === "GET") asked.list += 1;
  });
  await goto("/");
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  await eventually(() => asked.stats > 0 && asked.list > 0, "the page is loaded");
  const [begun, before] = [Date.now(), { ...asked }];
  let sent = 0;
  await eventually(async () => {
    await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject: `Order ${sent}`, text: "Thank you." }, { "idempotency-key": `flow-${sent++}` });
    return asked.list >= before.list + 5;
  }, "the list follows", SLOW_MS);
  const allowed = 2 + Math.floor((Date.now() - begun) / 10_000);
  const stats = asked.stats - before.stats;
  assert.ok(stats <= allowed, `${stats} requests for statistics, ${allowed} allowed`);
});

// Callers without ids of their own are told apart by their API keys, although these were made at the same time.
await withBrowser(async ({ page, goto }) => {
  const send = (secret) => api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject: "Two callers", text: "Thank you." }, { "idempotency-key": "two-callers", ...(secret && { authorization: `Bearer ${secret}` }) });
  const keys = await Promise.all(["first agent", "second agent"].map((name) => api("POST", "/v1/api-keys", { name, scopes: ["send"] })));
  const { id } = await send();
  for (const { api_key: secret } of keys) await send(secret);
  await eventually(async () => (await api("GET", `/v1/emails/${id}`)).suppressed_calls.length === 2, "both calls are kept");
  await goto(`/emails/${id}`);
  const duplicates = page.locator(".email-waterfall li.duplicate");
  await duplicates.first().waitFor();
  // Two calls of a burst share a row, and its title has a line for each.
  const callers = await duplicates.evaluateAll((rows) => rows.flatMap((row) => row.title.split("\n")).map((line) => line.split(" · ")[0]));
  assert.deepEqual(callers.sort(), keys.map((key) => `API key …${key.id.slice(-8)}`).sort());
  assert.notEqual(callers[0], callers[1]);
});
