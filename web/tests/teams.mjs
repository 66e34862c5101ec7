// A person of two teams signs in by an identity provider and changes the team: the page shows the other team's data and
// writes with the token of the new session. Starts a server of its own, which trusts that provider.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { signInWith, startProvider } from "./provider.mjs";
import { freeAddress, startDev } from "./server.mjs";

const folder = await mkdtemp(join(tmpdir(), "mailonce-web-teams-"));
const config = join(folder, "mailonce.toml");
const http = await freeAddress();
const provider = await startProvider(`http://${http}`, folder, { ada: { name: "Ada", groups: ["mailonce-admin"], teams: ["default", "Support"] } });
await writeFile(config, provider.config('role_claim = "groups"\nteam_claim = "teams"\n'));
const server = await startDev({ MAILONCE_CONFIG: config }, { http });
Object.assign(process.env, server.env);
const { api, eventually, withBrowser } = await import("./browser.mjs");

try {
  const own = (await api("GET", "/v1/teams")).data[0];
  assert.equal(own.name, "default");
  const other = await api("POST", "/v1/teams", { name: "Support" });
  await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: "eve@example.com", subject: "Of the first team", text: "Hi" }, { "idempotency-key": "first-team" });
  await withBrowser(async ({ page, goto, dashboard }) => {
    await signInWith(page, dashboard, "ada");
    await goto("/emails");
    await page.getByRole("link", { name: "Of the first team" }).waitFor();
    await page.getByRole("link", { name: "Of the first team" }).click();
    await page.getByRole("heading", { name: "Of the first team", level: 1 }).waitFor();
    await page.getByLabel("Team").selectOption("Support");
    await page.waitForURL((url) => url.pathname === "/");
    await eventually(async () => (await page.getByLabel("Team").inputValue()) === other.id, "the team is the other one");
    // The list of the first team is not kept for the back button.
    await page.goBack();
    await page.goBack();
    await page.waitForURL((url) => url.pathname === "/emails");
    await page.getByRole("heading", { name: "No email yet" }).waitFor();
    await goto("/");
    await page.getByLabel("Team").selectOption("default");
    await eventually(async () => (await page.getByLabel("Team").inputValue()) === own.id, "the team is the first one again");
    // The field changes at once, and the page when the server has answered.
    await page.getByRole("link", { name: "Of the first team" }).waitFor();
    // Without a reload: a change needs the token of the new session.
    await page.getByRole("link", { name: "Inboxes" }).click();
    await page.getByRole("button", { name: "Create inbox…" }).click();
    await page.getByRole("dialog").getByRole("textbox").first().fill("orders");
    await page.getByRole("dialog").getByRole("button", { name: /Create/ }).click();
    await page.getByRole("heading", { name: /^orders@/, level: 1 }).waitFor();
    // A request of the earlier session that is refused after the change signs nobody out.
    let held = null;
    await page.route("**/v1/stats?hours=0", (route) => (held ? route.fallback() : void (held = route)));
    await goto("/emails");
    await page.getByRole("link", { name: "Of the first team" }).waitFor();
    await page.getByLabel("Team").selectOption("Support");
    await page.getByRole("heading", { name: "Send your first email, twice" }).waitFor();
    const refused = page.waitForResponse((response) => response.status() === 401);
    await held.fulfill({ status: 401, json: { type: "about:blank", title: "Unauthorized", status: 401, code: "unauthorized", detail: "The session has ended." } });
    await refused;
    await page.getByRole("link", { name: "Emails", exact: true }).click();
    await page.getByRole("heading", { name: "No email yet" }).waitFor();
  }, { signedIn: false, hosts: [provider.issuer], allow: [/status of 404.*\/v1\/emails\//, /status of 401/] });
} finally {
  provider.close();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}
