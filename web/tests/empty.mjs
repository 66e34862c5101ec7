// Pages without data name an address that the server accepts, and with search turned off the list says how to turn it on.
// Starts a server of its own, whose search is off.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
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

/** Parts of a page that are empty have a next step, too. Commands that call the API are run. */
const emptyParts = async ({ page, goto, dashboard }) => {
  const command = page.getByLabel("the command", { exact: true });
  const run = async () => {
    const { stdout } = await promisify(execFile)("bash", ["-c", await command.innerText()], { env: { ...process.env, MAILONCE_URL: dashboard } });
    return JSON.parse(stdout);
  };
  await goto(`/inboxes/${(await api("GET", `/v1/inboxes/${ADDRESS}`)).id}`);
  await page.getByRole("tab", { name: "Arrivals" }).click();
  await command.getByText(`--to ${ADDRESS} --code --duplicate 3`).waitFor();
  const { id } = await api("POST", "/v1/endpoints", { url: "http://127.0.0.1:9/hooks" });
  await goto(`/webhooks/${id}`);
  assert.equal((await run()).delivered, false, "nobody listens there");
  await goto("/setup/people");
  await page.getByLabel("the URL of the MCP server", { exact: true }).getByText(`${dashboard}/mcp`).waitFor();
  assert.equal((await run()).name, "#approvals");
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
    await emptyParts(tools);
    await searchIsOff(tools);
  }, { allow: [/status of 403.*\/v1\/search/] });
} finally {
  await server.stop();
}
