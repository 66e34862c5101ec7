// A stop keeps email from leaving until it is ended, and a budget is created, changed and used.
import assert from "node:assert/strict";
import { api, eventually, fitsWidth, PHONE, withBrowser } from "./browser.mjs";

const send = (subject) => api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject, text: subject }, { "idempotency-key": subject });
const state = async (id) => (await api("GET", `/v1/emails/${id}`)).state;

const stopAndResume = async ({ page, goto, axe, picture }) => {
  await goto("/stops");
  await page.getByRole("button", { name: "Stop: Inbox" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Inbox").selectOption({ label: "agent@mailonce.test" });
  await dialog.getByLabel("Reason").fill("Answers in a <b>loop</b>");
  await axe();
  await dialog.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByText("Answers in a <b>loop</b>").waitFor();
  await page.getByText("in force").waitFor();
  const { data } = await api("GET", "/v1/stops");
  assert.equal(data.length, 1);
  const { id } = await send("Order 1");
  const stopped = await eventually(async () => {
    const email = await api("GET", `/v1/emails/${id}`);
    return email.stopped_by && email;
  }, "the stop covers the email");
  assert.deepEqual([stopped.state, stopped.stopped_by], ["queued", data[0].id]);
  await axe();
  await picture("stops");
  const { handoffs } = await api("GET", `/v1/emails/${id}`);
  assert.deepEqual(handoffs.flatMap(({ attempts }) => attempts), [], "nothing was tried before the stop ended");
  await page.getByRole("button", { name: "Resume…" }).click();
  await dialog.getByLabel("Handoffs per second, at most").fill("100");
  await dialog.getByRole("button", { name: "Resume", exact: true }).click();
  await eventually(async () => ["sent", "delivered"].includes(await state(id)), "the email leaves");
  // The list shows the stop until its release has ended.
  await page.getByText("in force").waitFor({ state: "detached" });
};

const dialogOf = (page) => page.getByRole("dialog");
const stopsOf = (page, level) => page.getByRole("list", { name: `Stops: ${level}`, exact: true });

/** Stops a level by the page, and returns the scopes of all stops. `target` is what the form chooses. */
const stopLevel = async (page, level, target) => {
  await page.getByRole("button", { name: `Stop: ${level}`, exact: true }).click();
  if (target) await dialogOf(page).getByLabel(level, { exact: true }).selectOption({ label: target });
  await dialogOf(page).getByRole("button", { name: "Stop", exact: true }).click();
  await stopsOf(page, level).getByText("in force").waitFor();
  return (await api("GET", "/v1/stops")).data.map(({ scope }) => scope);
};

const resumeLevel = async (page, level) => {
  await stopsOf(page, level).getByRole("button", { name: "Resume…" }).click();
  await dialogOf(page).getByRole("button", { name: "Resume", exact: true }).click();
  await eventually(async () => (await api("GET", "/v1/stops")).data.length === 0, `${level}: the stop ends`);
  await stopsOf(page, level).waitFor({ state: "detached" });
};

/** Each button of an operator stops what it says, and nothing else. */
const otherLevels = async ({ page, goto }) => {
  const { id } = await api("POST", "/v1/api-keys", { name: "order agent", scopes: ["send"] });
  const { name: transport } = (await api("GET", "/v1/transports")).data[0];
  const levels = [["Installation", null, { installation: true }], ["Transport", transport, { transport }], ["Team", null, { team: true }], ["API key", "order agent", { api_key: id }]];
  await eventually(async () => (await api("GET", "/v1/stops")).data.length === 0, "no stop is left");
  await goto("/stops");
  for (const [level, target, scope] of levels) {
    assert.deepEqual(await stopLevel(page, level, target), [scope], level);
    await resumeLevel(page, level);
  }
};

/** The picker has every inbox, also those after the first page of the list. */
const manyInboxes = async ({ page, goto }) => {
  const { data: before } = await api("GET", "/v1/inboxes?limit=100");
  const oldest = before.at(-1);
  for (let number = 1; number <= 101; number += 1) await api("POST", "/v1/inboxes", { username: `agent-${number}` });
  const { data: newest } = await api("GET", "/v1/inboxes?limit=100");
  assert.ok(!newest.some(({ id }) => id === oldest.id), "the oldest inbox is not on the first page");
  await goto("/stops");
  assert.deepEqual(await stopLevel(page, "Inbox", oldest.address), [{ inbox: oldest.id }]);
  await stopsOf(page, "Inbox").getByText(oldest.address).waitFor();
  await resumeLevel(page, "Inbox");
};

const budget = async ({ page, axe }) => {
  await page.getByRole("button", { name: "Add budget…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("agents");
  await dialog.getByLabel("Limit", { exact: true }).fill("4");
  await dialog.getByRole("button", { name: "Add budget", exact: true }).dblclick();
  await page.getByRole("meter", { name: "Used of agents" }).waitFor();
  assert.equal((await api("GET", "/v1/budgets")).data.length, 1, "one budget");
  await send("Order 2");
  await page.getByText("1 of 4").waitFor();
  await page.getByRole("button", { name: "Edit agents" }).click();
  await dialog.getByLabel("Limit per day").fill("2");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByText("1 of 2").waitFor();
  await page.getByRole("button", { name: "Edit agents" }).click();
  await dialog.getByLabel("Enabled").uncheck();
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByRole("table", { name: "Budgets" }).getByText("disabled").waitFor();
  await axe();
};

const transports = async ({ page }) => {
  const table = page.getByRole("table", { name: "Transports" });
  await table.getByText("working").first().waitFor();
  await page.getByRole("button", { name: "Test local" }).click();
  await page.getByLabel("To", { exact: true }).fill("eve@example.com");
  await page.getByRole("button", { name: "Send test" }).click();
  await page.waitForURL(/\/emails\//);
  const id = new URL(page.url()).pathname.split("/").pop();
  const email = await eventually(async () => {
    const current = await api("GET", `/v1/emails/${id}`);
    return ["sent", "delivered"].includes(current.state) && current;
  }, "the test arrives");
  assert.deepEqual(email.to, ["eve@example.com"]);
  assert.deepEqual(email.handoffs.flatMap(({ attempts }) => attempts.map(({ outcome }) => outcome)), ["accepted"]);
};

/** What a working server does not show: an open breaker, and a transport that was removed while mail waits for it. */
const brokenTransports = async ({ page, goto, axe }) => {
  const { data } = await api("GET", "/v1/transports");
  const first = { ...data[0], breaker: "open", breaker_reason: "10 attempts failed in a row" };
  await page.route("**/v1/transports", (route) => route.fulfill({ json: { data: [first, ...data.slice(1)], orphaned: [{ name: "old-relay", waiting: 3, unknown: 1 }] } }));
  let moved = null;
  await page.route("**/v1/transports/old-relay/reroute", (route) => {
    moved = route.request().postDataJSON();
    return route.fulfill({ json: { moved: 2, not_moved: 1, has_more: false } });
  });
  await goto("/setup/transports");
  await page.getByRole("table", { name: "Transports" }).getByText("circuit breaker open: 10 attempts failed in a row").waitFor();
  await page.getByText("old-relay").waitFor();
  await axe();
  await page.getByRole("button", { name: "Move…" }).click();
  await page.getByRole("dialog").getByLabel("To").selectOption(data[1].name);
  await page.getByRole("dialog").getByRole("button", { name: "Move", exact: true }).click();
  await page.getByText("2 moved, 1 stay because they are in doubt").waitFor();
  assert.deepEqual(moved, { to: data[1].name });
  await page.unrouteAll();
};

await withBrowser(async (tools) => {
  await brokenTransports(tools);
  await stopAndResume(tools);
  await budget(tools);
  await transports(tools);
  await otherLevels(tools);
  await manyInboxes(tools);
});
await withBrowser(async ({ page, goto, axe }) => {
  await goto("/stops");
  await page.getByRole("heading", { name: "Budgets", exact: true }).waitFor();
  assert.ok(await page.getByRole("button", { name: "Stop: Installation" }).isDisabled(), "only operators stop the installation");
  await fitsWidth(page);
  await axe();
}, { viewport: PHONE, colorScheme: "dark" });
