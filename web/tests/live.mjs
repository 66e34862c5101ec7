// The live page: a duplicate appears by itself, the list can be paused and filtered, and the copied call works.
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
  const before = await rows.count();
  await send("order-4822", "Order 4822");
  await page.getByRole("button", { name: /Resume \(\d+ new\)/ }).waitFor();
  assert.equal(await rows.count(), before);
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

await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto("/live");
  await page.getByText("email.duplicate").first().waitFor();
  await page.getByRole("button", { name: /email.duplicate/ }).first().click();
  await page.getByText("Idempotency-Key").waitFor();
  await fitsWidth(page);
  await axe();
  await picture("live-phone");
}, { viewport: PHONE, colorScheme: "dark" });
