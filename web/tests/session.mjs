// Roles and the end of a session: a viewer looks and cannot decide, an approver decides and changes nothing else, and
// signing out leads to the page that explains how to sign in. The theme that a person chooses stays.
import assert from "node:assert/strict";
import { api, withBrowser } from "./browser.mjs";

await api("POST", "/v1/rules", { name: "all", direction: "outbound", actions: [{ type: "approve" }], match: { conditions: [{ field: "subject", operator: "contains", value: "Invoice" }] } });
await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject: "Invoice 1", text: "Please pay." });
const viewer = await api("POST", "/v1/people", { name: "Vera", role: "viewer", address: "vera@example.com" });
const { url } = await api("POST", `/v1/people/${viewer.id}/sign-in-links`);

await withBrowser(async ({ page, goto, dashboard, axe }) => {
  await page.goto(dashboard + new URL(url).pathname);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((at) => !at.pathname.startsWith("/sign-in"));
  await goto("/needs-you");
  await page.getByText("To decide, you need the role approver or admin.").waitFor();
  await page.getByText("Please pay.").waitFor();
  assert.ok(await page.getByRole("button", { name: "Approve and send" }).isDisabled());
  await page.getByText("Vera").waitFor();
  await axe();
  await goto("/setup/people");
  await page.getByRole("button", { name: "End all sessions…" }).click();
  await page.getByRole("dialog").getByText("That includes this browser.").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in to mailonce" }).waitFor();
  assert.ok((await api("GET", `/v1/people/${viewer.id}`)).signed_out_at);
  await goto("/emails");
  await page.getByRole("heading", { name: "Sign in to mailonce" }).waitFor();
}, { signedIn: false, allow: [/status of 401.*\/v1\/session/] });

// A session that ends elsewhere is noticed by the next call.
await withBrowser(async ({ page, goto, context }) => {
  await goto("/emails");
  await page.getByRole("link", { name: "Invoice 1" }).waitFor();
  await context.clearCookies();
  await page.getByRole("link", { name: "Invoice 1" }).click();
  await page.getByRole("heading", { name: "Sign in to mailonce" }).waitFor();
}, { allow: [/status of 401/] });

const approver = await api("POST", "/v1/people", { name: "Ada", role: "approver" });
const link = await api("POST", `/v1/people/${approver.id}/sign-in-links`);
await withBrowser(async ({ page, goto, dashboard, axe }) => {
  await page.goto(dashboard + new URL(link.url).pathname);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((at) => !at.pathname.startsWith("/sign-in"));
  const theme = () => page.evaluate(() => [document.documentElement.dataset.theme, getComputedStyle(document.documentElement).colorScheme]);
  await page.getByRole("button", { name: "Theme: system" }).click();
  assert.equal((await theme())[0], "light");
  await page.getByRole("heading", { level: 1 }).click();
  await page.keyboard.press("t");
  assert.equal((await theme())[0], "dark");
  await page.reload();
  await page.getByRole("button", { name: "Theme: dark" }).waitFor();
  assert.match((await theme()).join(), /^dark,.*dark/);
  await axe();
  await goto("/stops");
  assert.ok(await page.getByRole("button", { name: "Stop: Team" }).isDisabled());
  await goto("/needs-you");
  await page.getByRole("button", { name: "Approve and send" }).click();
  await page.getByRole("heading", { name: "Nothing waits for you" }).waitFor();
  assert.notEqual((await api("GET", "/v1/emails")).data[0].state, "held");
}, { signedIn: false, allow: [/status of 401.*\/v1\/session/] });
