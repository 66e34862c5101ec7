// The set-up: an API key is shown once, a rule is added and simulated, a domain is checked, a person gets a sign-in link,
// snippets name this server, metrics are drawn, the audit log has it all, and a setting is saved.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { api, eventually, fitsWidth, PHONE, withBrowser } from "./browser.mjs";
import { connectProgram } from "./oauth.mjs";

const apiKey = async ({ page, goto, axe }) => {
  await goto("/setup/api-keys");
  await page.getByRole("button", { name: "Create API key…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("support <agent>");
  await dialog.getByLabel("reply:").check();
  await dialog.getByLabel("agent@mailonce.test").check();
  await axe();
  await dialog.getByRole("button", { name: "Create", exact: true }).dblclick();
  const secret = await page.getByLabel("the API key", { exact: true }).innerText();
  assert.match(secret, /^mo_/);
  await page.getByRole("button", { name: "I have copied it" }).click();
  await page.getByText("support <agent>").waitFor();
  assert.ok(!(await page.content()).includes(secret), "the secret is gone");
  const made = (await api("GET", "/v1/api-keys")).data.filter(({ name }) => name === "support <agent>");
  assert.equal(made.length, 1, "one key");
  assert.deepEqual(made[0].scopes, ["send", "read", "reply"]);
  assert.equal((await api("GET", "/v1/emails", undefined, { authorization: `Bearer ${secret}` })).data.length, 0);
  await page.getByRole("button", { name: "Revoke support <agent>" }).click();
  await page.getByRole("button", { name: "Revoke key" }).click();
  await page.getByRole("table").getByText("revoked", { exact: true }).waitFor();
};

const rule = async ({ page, goto, axe, picture }) => {
  await goto("/setup/rules");
  await page.getByRole("button", { name: "Add rule…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("offers");
  await dialog.getByLabel("Field").selectOption("subject");
  await dialog.getByLabel("Comparison").selectOption("contains");
  await dialog.getByLabel("Value").fill("offer");
  await dialog.getByRole("button", { name: "Add rule", exact: true }).click();
  await page.getByText("If subject contains “offer”").waitFor();
  await page.getByRole("button", { name: "Enforce: offers" }).click();
  await page.getByRole("button", { name: "Observe only: offers" }).waitFor();
  await page.getByLabel("To", { exact: true }).fill("ada@example.com");
  await page.getByLabel("Subject").fill("An offer");
  await page.getByLabel("Text").fill("20 % off");
  await page.getByRole("button", { name: "Simulate" }).click();
  await page.locator("main").getByText("It would be accepted and held.").waitFor();
  await page.getByRole("table", { name: "Policy trace" }).getByText("offers").waitFor();
  assert.equal((await api("GET", "/v1/emails")).data.length, 0, "nothing was sent");
  await axe();
  await picture("setup-rules-simulated", { fullPage: true });
};

const domainAndPerson = async ({ page, goto }) => {
  await goto("/setup/domains");
  await page.getByRole("button", { name: "Add domain…" }).click();
  await page.getByLabel("Domain", { exact: true }).fill("shop.example");
  await page.getByRole("button", { name: "Add domain", exact: true }).click();
  await page.getByText("_mailonce.shop.example").waitFor();
  await page.getByRole("button", { name: "Copy the name of _mailonce.shop.example" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "_mailonce.shop.example");
  // No resolver of this machine knows the domain, so the server's answer is simulated.
  await page.route("**/v1/domains/*/verify", async (route) => {
    const [domain] = (await api("GET", "/v1/domains")).data;
    return route.fulfill({ json: { ...domain, state: "verified", checked_at: new Date().toISOString() } });
  });
  await page.getByRole("button", { name: "Check DNS" }).click();
  await page.getByText("shop.example is verified").waitFor();
  await page.getByRole("region", { name: "shop.example" }).getByText("verified", { exact: true }).waitFor();
  await goto("/setup/people");
  await page.getByRole("button", { name: "Add person…" }).click();
  await page.getByLabel("Name").fill("Grace");
  await page.getByRole("button", { name: "Add person", exact: true }).click();
  await page.getByRole("button", { name: "Sign-in link for Grace" }).click();
  assert.match(await page.getByLabel("the sign-in link", { exact: true }).innerText(), /\/sign-in\//);
  await page.getByRole("button", { name: "I have copied it" }).click();
};

/** The connection is listed with all inboxes, and its person can end it, whatever the role. */
const connection = async (tools) => {
  const { page, goto } = tools;
  await connectProgram(tools, "Robot <b>7</b>");
  await goto("/setup/people");
  const row = page.getByRole("table", { name: "Connections" }).getByRole("row").filter({ hasText: "Robot <b>7</b>" });
  await row.getByRole("cell", { name: "all", exact: true }).waitFor();
  await row.getByRole("button", { name: /^Disconnect/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Disconnect" }).click();
  await row.waitFor({ state: "detached" });
};

/** Older connections are on further pages, and can be ended there. */
const manyConnections = async (tools) => {
  const { page, goto } = tools;
  await connectProgram(tools, "Oldest");
  await connectProgram(tools, "Newer", undefined, 20);
  await goto("/setup/people");
  const rows = page.getByRole("table", { name: "Connections" }).getByRole("row");
  await rows.filter({ hasText: "Newer" }).nth(19).waitFor();
  assert.equal(await rows.filter({ hasText: "Oldest" }).count(), 0);
  await page.getByRole("button", { name: "Show more" }).click();
  await rows.filter({ hasText: "Oldest" }).getByRole("button", { name: /^Disconnect/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Disconnect" }).click();
  await eventually(async () => (await api("GET", "/v1/connections?limit=100")).data.every(({ client }) => client.name !== "Oldest"), "the end of the connection");
};

const connectAndMetrics = async ({ page, goto, dashboard, picture }) => {
  await goto("/setup/connect");
  await page.getByText(`curl -s ${dashboard}/v1/emails`).waitFor();
  for (const name of await page.getByRole("tab").allInnerTexts()) {
    await page.getByRole("tab", { name, exact: true }).click();
    const text = await page.getByLabel(`the ${name} snippet`, { exact: true }).innerText();
    // The configuration of a server names no server.
    assert.equal(text.includes(dashboard), name !== "SMTP", `${name}: ${text}`);
  }
  await page.getByRole("tab", { name: "MCP" }).click();
  await page.getByText(`"url": "${dashboard}/mcp"`).waitFor();
  await page.locator(".stream.live").waitFor();
  await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject: "Order 1", text: "Hi" });
  await page.locator("main").getByText("An email was accepted").waitFor();
  await goto("/setup/metrics");
  await page.getByRole("region", { name: "Sends" }).locator(".setup-total").getByText("1", { exact: true }).waitFor();
  await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["bob@example.com"], subject: "Order 2", text: "Hi" });
  await page.getByRole("region", { name: "Sends" }).locator(".setup-total").getByText("2", { exact: true }).waitFor();
  // A metric without a value is not served before its first event; all are documented.
  const served = await (await fetch(`${dashboard}/metrics`, { headers: { authorization: `Bearer ${process.env.MAILONCE_API_KEY}` } })).text();
  const documented = await Promise.all(["operations", "webhooks"].map((page) => readFile(new URL(`../../docs/${page}.md`, import.meta.url), "utf8")));
  const known = [served, ...documented].join("\n");
  const queries = await page.getByLabel(/^the PromQL of/).allInnerTexts();
  const names = queries.flatMap((query) => query.match(/mailonce_\w+/g));
  assert.ok(queries.length === 6 && names.length >= 6, queries.join("\n"));
  for (const name of names) assert.match(known, new RegExp(`\\b${name}\\b`), `the metric ${name}`);
  await picture("setup-metrics");
};

const auditAndSettings = async ({ page, goto }) => {
  await goto("/setup/audit?action=rule.*");
  const entries = page.getByRole("list", { name: "Audit entries" });
  await entries.getByText("rule.changed", { exact: true }).waitFor();
  assert.equal(await entries.getByText("api_key.created", { exact: true }).count(), 0, "filtered");
  await goto("/setup/settings");
  await page.getByLabel("Time zone").selectOption("Europe/Berlin");
  await page.getByLabel("Received mail").fill("90d");
  await page.getByLabel("Tags that get an unsubscribe link").pressSequentially("newsletter, kind=offer");
  await page.getByRole("button", { name: "Save changes" }).click();
  await eventually(async () => (await api("GET", "/v1/settings")).time_zone === "Europe/Berlin", "the time zone");
  const { retention, unsubscribe } = await api("GET", "/v1/settings");
  assert.deepEqual([retention.raw, unsubscribe.tags], ["90d", ["newsletter", "kind=offer"]]);
  await page.getByLabel("Audit log", { exact: true }).fill("soon");
  await page.getByRole("button", { name: "Save changes" }).click();
  await page.getByRole("alert").waitFor();
};

await withBrowser(async (tools) => {
  await apiKey(tools);
  await rule(tools);
  await domainAndPerson(tools);
  await connection(tools);
  await connectAndMetrics(tools);
  await auditAndSettings(tools);
}, { allow: [/status of (400|422).*\/v1\/settings/] });
await withBrowser(async ({ page, goto, axe }) => {
  for (const section of ["rules", "people", "audit"]) {
    await goto(`/setup/${section}`);
    await page.locator("main li").first().waitFor();
    await fitsWidth(page);
    await axe();
  }
}, { viewport: PHONE, colorScheme: "dark" });
// A viewer sees what the role allows, without calls that are refused.
await withBrowser(async ({ page, goto, dashboard, axe }) => {
  const viewer = await api("POST", "/v1/people", { name: "Viewer", role: "viewer" });
  const { url } = await api("POST", `/v1/people/${viewer.id}/sign-in-links`);
  await page.goto(dashboard + new URL(url).pathname);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((to) => !to.pathname.startsWith("/sign-in"));
  await connection({ page, goto, dashboard });
  await manyConnections({ page, goto, dashboard });
  for (const section of ["domains", "api-keys", "audit"]) {
    await goto(`/setup/${section}`);
    await page.getByRole("heading", { name: "Only administrators see this" }).waitFor();
  }
  await goto("/setup/settings");
  await page.getByText("Changes need the scope admin.").waitFor();
  await goto("/stops");
  assert.ok(await page.getByRole("button", { name: "Stop: Team" }).isDisabled());
  await goto("/webhooks");
  assert.ok(await page.getByRole("button", { name: "Add endpoint…" }).isDisabled());
  await goto("/setup/rules");
  await page.getByText("Needs the scope send.").waitFor();
  await axe();
}, { signedIn: false, allow: [/status of 401.*\/v1\/session/] });
