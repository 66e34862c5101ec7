// People sign in by an identity provider that others wrote, in Chromium: log-in, consent, code with PKCE, the role of a
// claim, a role that was taken away, and new keys of the provider. Starts a server of its own, which trusts that provider.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { answerProvider, openProvider, signInWith, startProvider } from "./provider.mjs";
import { freeAddress, startDev } from "./server.mjs";

/** The server reads the keys of the provider again after this time at the earliest. */
const KEY_REFRESH_MS = 10_000;

const folder = await mkdtemp(join(tmpdir(), "mailonce-web-oidc-"));
const config = join(folder, "mailonce.toml");
const http = await freeAddress();
const ada = { name: "Ada Byron", email: "ada@example.com", email_verified: true, groups: ["staff", "mailonce-admin"] };
const provider = await startProvider(`http://${http}`, folder, { ada });
await writeFile(config, provider.config('role_claim = "groups"\ndefault_role = "viewer"\n'));
const server = await startDev({ MAILONCE_CONFIG: config }, { http });
Object.assign(process.env, server.env);
const { api, withBrowser } = await import("./browser.mjs");

const session = (page) => page.evaluate(async () => (await fetch("/v1/session")).json());
const signOut = (page) => page.getByRole("button", { name: "Sign out" }).click();
const failed = (page) => page.getByRole("heading", { name: "The sign-in failed." }).waitFor();

/** The way there and back, and what its last address is good for. */
const asAdmin = async ({ page, dashboard }) => {
  const seen = [];
  page.on("request", (request) => request.isNavigationRequest() && seen.push(new URL(request.url())));
  await signInWith(page, dashboard, "ada");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  const asked = seen.find(({ origin, pathname }) => origin === provider.issuer && pathname === "/auth").searchParams;
  assert.deepEqual(["response_type", "code_challenge_method"].map((name) => asked.get(name)), ["code", "S256"]);
  const { person, scopes } = await session(page);
  assert.deepEqual([person.name, person.role, person.address], ["Ada Byron", "admin", "ada@example.com"]);
  assert.ok(scopes.includes("admin"));
  await page.goto(`${dashboard}/inboxes`);
  await page.getByRole("button", { name: "Create inbox…" }).click();
  await page.getByLabel("Address").fill("orders");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "orders@mailonce.test" }).waitFor();
  const back = seen.find(({ origin, pathname }) => origin === dashboard && pathname === "/sign-in/oidc/callback");
  assert.equal((await page.goto(back.href)).status(), 403, "a code is used once");
  await failed(page);
};

/** Nobody is asked again by the provider, but the role is that of today. */
const asViewer = async ({ page, dashboard, goto }) => {
  ada.groups = ["staff"];
  await goto("/");
  await signOut(page);
  await signInWith(page, dashboard, "nobody");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  const { person, scopes } = await session(page);
  assert.deepEqual([person.name, person.role, scopes], ["Ada Byron", "viewer", ["read"]]);
  await goto("/setup/api-keys");
  await page.getByRole("heading", { name: "Only administrators see this" }).waitFor();
  assert.deepEqual((await api("GET", "/v1/people")).data.filter(({ name }) => name === "Ada Byron").map(({ role }) => role), ["viewer"], "one person");
};

const cancelled = async ({ page, context, dashboard }) => {
  await context.clearCookies();
  await openProvider(page, dashboard);
  await page.getByRole("link", { name: "[ Cancel ]" }).click();
  await failed(page);
  await page.getByText("access_denied").waitFor();
};

/** Whoever opens a question signed out comes back to it, and not to the dashboard. */
const backToTheQuestion = async ({ page, context, dashboard, goto }) => {
  const { id } = await api("POST", "/v1/escalations", { question: "May I refund order 4821?" });
  await context.clearCookies();
  await goto(`/needs-you/${id}`);
  await page.getByRole("link", { name: "Other ways to sign in" }).click();
  await page.getByRole("link", { name: "Sign in with 127.0.0.1" }).click();
  await page.waitForURL(({ pathname }) => pathname !== "/sign-in");
  await answerProvider(page, dashboard, "ada");
  await page.waitForURL(`${dashboard}/needs-you/${id}`);
  await page.getByText("May I refund order 4821?").first().waitFor();
  assert.deepEqual((await context.cookies()).filter(({ name }) => name === "mailonce-next"), []);
};

const withNewKeys = async ({ page, dashboard }, keysReadAt) => {
  provider.rotateKeys();
  ada.groups = ["mailonce-approver"];
  await new Promise((done) => setTimeout(done, keysReadAt + KEY_REFRESH_MS - Date.now()));
  await signInWith(page, dashboard, "ada");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  assert.equal((await session(page)).person.role, "approver");
};

try {
  await withBrowser(async (tools) => {
    await asAdmin(tools);
    const keysReadAt = Date.now();
    await asViewer(tools);
    await cancelled(tools);
    await backToTheQuestion(tools);
    await withNewKeys(tools, keysReadAt);
  }, { signedIn: false, hosts: [provider.issuer], allow: [/status of 403.*\/sign-in\/oidc\/callback/, /status of 401.*\/v1\/session/] });
} finally {
  provider.close();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}
