// A person of two teams signs in by an identity provider and changes the team: the page shows the other team's data and
// writes with the token of the new session. Starts a server of its own, which trusts that provider.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startProvider } from "./provider.mjs";
import { startDev } from "./server.mjs";

const folder = await mkdtemp(join(tmpdir(), "mailonce-web-teams-"));
const config = join(folder, "mailonce.toml");
const provider = await startProvider(["default", "Support"]);
await writeFile(config, provider.config);
const server = await startDev({ MAILONCE_CONFIG: config });
Object.assign(process.env, server.env);
const { api, eventually, withBrowser } = await import("./browser.mjs");

try {
  const own = (await api("GET", "/v1/teams")).data[0];
  assert.equal(own.name, "default");
  const other = await api("POST", "/v1/teams", { name: "Support" });
  await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: "eve@example.com", subject: "Of the first team", text: "Hi" }, { "idempotency-key": "first-team" });
  const [name, value] = (await provider.signIn(process.env.MAILONCE_URL)).split("=");
  await withBrowser(async ({ page, context, goto, dashboard }) => {
    await context.addCookies([{ name, value, url: dashboard }]);
    await goto("/emails");
    await page.getByRole("link", { name: "Of the first team" }).waitFor();
    await page.getByLabel("Team").selectOption("Support");
    await page.waitForURL((url) => url.pathname === "/");
    await eventually(async () => (await page.getByLabel("Team").inputValue()) === other.id, "the team is the other one");
    await goto("/emails");
    await page.getByRole("heading", { name: "No email yet" }).waitFor();
    await goto("/");
    await page.getByLabel("Team").selectOption("default");
    await eventually(async () => (await page.getByLabel("Team").inputValue()) === own.id, "the team is the first one again");
    // Without a reload: a change needs the token of the new session.
    await page.getByRole("link", { name: "Inboxes" }).click();
    await page.getByRole("button", { name: "Create inbox…" }).click();
    await page.getByRole("dialog").getByRole("textbox").first().fill("orders");
    await page.getByRole("dialog").getByRole("button", { name: /Create/ }).click();
    await page.getByRole("heading", { name: /^orders@/, level: 1 }).waitFor();
  }, { signedIn: false });
} finally {
  provider.close();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}
