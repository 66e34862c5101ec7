// The check of a domain's DNS records: missing, different, unknown and found ones are shown as what they are, and the
// domain is verified when all are found. Starts a server of its own that asks a DNS server of this test.
//
// The server reads the address of its DNS server from /etc/resolv.conf and asks at port 53. The test therefore runs itself
// again in Linux namespaces of its own, where that file names 127.0.0.1 and port 53 is free. This machine's file stays as it is.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startDns } from "./dns.mjs";
import { startDev } from "./server.mjs";

const PRIVATE = ["--user", "--map-root-user", "--mount", "--net"];
const ENTER = 'ip link set lo up && mount --bind "$RESOLV_CONF" /etc/resolv.conf && exec "$@"';

/** Runs `command` with a loopback interface and an /etc/resolv.conf of its own. Returns its exit code. */
const runPrivately = (command, env) => spawnSync("unshare", [...PRIVATE, "bash", "-c", ENTER, "bash", ...command], { env: { ...process.env, ...env }, stdio: "inherit" }).status;

const again = async () => {
  const folder = await mkdtemp(join(tmpdir(), "mailonce-web-domains-"));
  const RESOLV_CONF = join(folder, "resolv.conf");
  await writeFile(RESOLV_CONF, "nameserver 127.0.0.1\n");
  try {
    const isAllowed = runPrivately(["true"], { RESOLV_CONF }) === 0;
    if (isAllowed) return runPrivately([process.execPath, fileURLToPath(import.meta.url)], { RESOLV_CONF, HAS_OWN_RESOLV_CONF: "1" }) ?? 1;
    console.log("domains: NOT TESTED. The check of DNS records needs `unshare` (Linux) with user namespaces, and `ip`.");
    return 0;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
};

if (!process.env.HAS_OWN_RESOLV_CONF) process.exit(await again());

const records = new Map();
const dns = await startDns(records, 53);
const server = await startDev();
Object.assign(process.env, server.env);
const { api, eventually, fitsWidth, PHONE, withBrowser } = await import("./browser.mjs");

const NAME = "shop.example";
const card = (page) => page.getByRole("region", { name: NAME });
/** The status of each required record, in the order of the page. The list of a verified domain is closed. */
const statuses = async (page) => {
  const rows = await card(page).locator(".setup-record").filter({ hasNot: page.getByText("recommended", { exact: true }) }).all();
  return Promise.all(rows.map(async (row) => (await row.locator(".chip").allTextContents()).join(" ")));
};

/** Presses the button, and waits until the page shows the state of the domain and the status of each record. */
const check = async (page, state, expected) => {
  await card(page).getByRole("button", { name: "Check DNS" }).click();
  await eventually(async () => JSON.stringify(await statuses(page)) === JSON.stringify(expected), `the statuses ${expected}`);
  await card(page).getByRole("heading", { level: 2 }).getByText(state, { exact: true }).waitFor();
};

const verify = async ({ page, goto, axe, picture }) => {
  await goto("/setup/domains");
  await page.getByRole("button", { name: "Add domain…" }).click();
  await page.getByLabel("Domain", { exact: true }).fill(NAME);
  await page.getByRole("button", { name: "Add domain", exact: true }).click();
  await card(page).getByText("Not checked yet.").waitFor();
  assert.deepEqual(await statuses(page), ["", "", ""], "nothing is known before a check");
  const [domain] = (await api("GET", "/v1/domains")).data;
  const [ownership, rsa, ed25519] = domain.records.filter(({ required }) => required);

  await check(page, "failed", ["missing", "missing", "missing"]);
  await page.getByText(`${NAME}: not all required records were found`).waitFor();
  await axe();

  records.set(ownership.name, [ownership.value]);
  records.set(rsa.name, ["v=DKIM1; k=rsa; p=AAAA"]);
  records.set(ed25519.name, "fail");
  await check(page, "failed", ["found", "different", "unknown"]);
  await axe();
  await picture("setup-domain-checked", { fullPage: true });

  for (const { name, value } of [rsa, ed25519]) records.set(name, [value]);
  await check(page, "verified", ["found", "found", "found"]);
  await page.getByText(`${NAME} is verified`).waitFor();
  assert.equal((await api("GET", `/v1/domains/${domain.id}`)).state, "verified");

  // A DNS server that fails proves nothing, so the domain stays verified. A record that is gone ends it.
  records.set(ownership.name, "fail");
  await check(page, "verified", ["unknown", "found", "found"]);
  records.delete(ownership.name);
  await check(page, "failed", ["missing", "found", "found"]);
};

const isShownOnPhone = async ({ page, goto, axe }) => {
  await goto("/setup/domains");
  await card(page).getByText(/^Checked /).waitFor();
  assert.deepEqual(await statuses(page), ["missing", "found", "found"], "a reload shows the latest check");
  await fitsWidth(page);
  await axe();
};

try {
  await withBrowser(verify);
  await withBrowser(isShownOnPhone, { viewport: PHONE, colorScheme: "dark" });
} finally {
  await server.stop();
  dns.close();
}
