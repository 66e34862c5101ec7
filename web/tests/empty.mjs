// Pages without data name an address that the server accepts, and with search turned off the list says how to turn it on.
// Starts a server of its own, whose search is off.
import assert from "node:assert/strict";
import { startDev } from "./server.mjs";

const server = await startDev({ MAILONCE_SEARCH_ENABLED: "false" });
Object.assign(process.env, server.env);
const { api, withBrowser } = await import("./browser.mjs");

const ADDRESS = "orders@mailonce.test";

const emptyPages = async ({ page, goto }) => {
  await api("POST", "/v1/inboxes", { address: ADDRESS });
  await api("POST", "/v1/inboxes", { address: "one-task@mailonce.test", ttl: "1h" });
  for (const path of ["/emails", "/live", "/keys", "/duplicates", "/threads"]) {
    await goto(path);
    const text = await page.getByLabel("the command", { exact: true }).innerText();
    assert.ok(text.includes(ADDRESS), `${path}: ${text}`);
  }
};

const searchIsOff = async ({ page, goto, axe }) => {
  await api("POST", "/v1/emails", { from: ADDRESS, to: ["eve@example.com"], subject: "Order 1", text: "Thank you." }, { "idempotency-key": "order-1" });
  await goto("/emails");
  await page.getByRole("link", { name: "Order 1" }).waitFor();
  await page.getByLabel("Search").fill("order");
  await page.getByRole("heading", { name: "Search is turned off on this server" }).waitFor();
  await page.getByText("enabled = true").waitFor();
  await axe();
  await page.getByRole("button", { name: "Clear the search" }).click();
  await page.getByRole("link", { name: "Order 1" }).waitFor();
};

try {
  await withBrowser(async (tools) => {
    await emptyPages(tools);
    await searchIsOff(tools);
  }, { allow: [/status of 403.*\/v1\/search/] });
} finally {
  await server.stop();
}
