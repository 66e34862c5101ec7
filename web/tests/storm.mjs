// The button sends the same email 50 times at once; one email is accepted, and the page draws each call.
import assert from "node:assert/strict";
import { api, eventually, withBrowser } from "./browser.mjs";

await withBrowser(async ({ page, goto, axe, picture }) => {
  await goto("/");
  await page.getByRole("button", { name: "Send it 50 times" }).click();
  await page.getByText("duplicates stopped").waitFor();
  const tiles = await page.locator(".home-tile").allInnerTexts();
  assert.deepEqual(tiles.map((text) => text.replace(/\s+/g, " ")), ["50 calls", "1 email accepted", "49 duplicates stopped"]);
  assert.equal(await page.locator(".home-storm rect").count(), 50);
  assert.equal(await page.locator(".home-storm rect.first").count(), 1);
  await axe();
  await picture("storm", { fullPage: true });
  const { data } = await api("GET", "/v1/emails");
  assert.equal(data.length, 1, "one email exists");
  await eventually(async () => (await api("GET", `/v1/emails/${data[0].id}`)).suppressed === 49, "49 suppressed calls");
  await page.getByRole("link", { name: "See the email and its callers" }).click();
  await page.getByText("49 duplicates stopped").waitFor();
  // The latest 20 callers are drawn one by one.
  assert.equal(await page.locator(".email-waterfall li.duplicate").count(), 20);
  await page.getByText("29 earlier duplicates").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.tagName), "H1", "the focus moves to the heading");
  await axe();
  await picture("storm-email", { fullPage: true });
});
