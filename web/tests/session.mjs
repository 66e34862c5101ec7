// Roles and the end of a session: a viewer looks and cannot decide, and signing out leads to the page that explains how
// to sign in.
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
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in to mailonce" }).waitFor();
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
