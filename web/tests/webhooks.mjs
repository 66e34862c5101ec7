// An endpoint is created and its secret is shown once. Its receiver fails, is repaired, and a notice is replayed. Then
// recover, pause, resume, test and rotate.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { api, eventually, fitsWidth, PHONE, withBrowser } from "./browser.mjs";

const received = [];
let status = 500;
const receiver = createServer((request, response) => {
  received.push({ id: request.headers["webhook-id"], status });
  response.writeHead(status).end(status === 500 ? "<b>no such column</b>" : "ok");
});
await new Promise((done) => receiver.listen(0, "127.0.0.1", done));
const url = `http://127.0.0.1:${receiver.address().port}/hooks`;

const create = async ({ page, goto, axe }) => {
  await goto("/webhooks");
  await page.getByRole("heading", { name: "No endpoint yet" }).waitFor();
  await page.getByRole("button", { name: "Add endpoint…" }).click();
  await page.getByLabel("URL").fill(url);
  await page.getByLabel("Description").fill("Order service");
  await page.getByLabel("All events").uncheck();
  await axe();
  // Enter and a click at once must not create two endpoints.
  await page.getByRole("button", { name: "Add endpoint", exact: true }).dblclick();
  const secret = await page.getByLabel("the signing secret", { exact: true }).innerText();
  assert.match(secret, /^whsec_/);
  await page.getByRole("button", { name: "I have copied it" }).click();
  await page.getByRole("heading", { name: "Order service", level: 1 }).waitFor();
  const { data } = await api("GET", "/v1/endpoints");
  assert.equal(data.length, 1, "one endpoint");
  assert.deepEqual(data[0].events, ["email.*"]);
  assert.ok(!(await page.content()).includes(secret), "the secret is gone");
  return data[0].id;
};

const replay = async ({ page, axe, picture }) => {
  await api("POST", "/v1/emails", { from: "agent@mailonce.test", to: ["eve@example.com"], subject: "Order 1", text: "Hi" });
  const notice = page.locator("details").filter({ hasText: "email.accepted" });
  await notice.locator("summary").getByText("500").waitFor();
  await notice.locator("summary").click();
  await notice.getByText("<b>no such column</b>").first().waitFor();
  await axe();
  await picture("webhooks-notice");
  status = 200;
  const { id } = received[0];
  const before = received.length;
  await notice.getByRole("button", { name: "Replay" }).click();
  await eventually(() => received.slice(before).some((request) => request.id === id && request.status === 200), "the replayed notice");
  await notice.locator("summary").getByText("delivered").waitFor();
};

const manage = async ({ page }, endpoint) => {
  const state = async () => (await api("GET", `/v1/endpoints/${endpoint}`)).state;
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Resume" }).waitFor();
  assert.equal(await state(), "paused");
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "Pause" }).waitFor();
  assert.equal(await state(), "enabled");
  await page.getByRole("button", { name: "Test", exact: true }).click();
  await page.getByRole("dialog").getByText("delivered").waitFor();
  await page.keyboard.press("Escape");
  const before = received.length;
  await page.getByRole("button", { name: "Recover…" }).click();
  await page.getByLabel("What").selectOption("all");
  await page.getByRole("button", { name: "Send again" }).click();
  await eventually(() => received.slice(before).some(({ id }) => id === received[0].id), "the first notice is sent again");
  await page.getByRole("button", { name: "Rotate secret…" }).click();
  await page.getByRole("button", { name: "Rotate", exact: true }).click();
  assert.match(await page.getByLabel("the signing secret", { exact: true }).innerText(), /^whsec_/);
  await page.getByRole("button", { name: "I have copied it" }).click();
  await page.getByText("2 secrets sign requests").waitFor();
};

let endpoint = "";
await withBrowser(async (tools) => {
  endpoint = await create(tools);
  await replay(tools);
  await manage(tools, endpoint);
});
await withBrowser(async ({ page, goto, axe }) => {
  await goto(`/webhooks/${endpoint}?state=delivered`);
  await page.getByText("email.accepted").first().waitFor();
  await fitsWidth(page);
  await axe();
}, { viewport: PHONE, colorScheme: "dark" });
receiver.closeAllConnections();
receiver.close();
