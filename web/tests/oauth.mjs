// A program that a person connects with their own sign-in, as MCP clients do.
import assert from "node:assert/strict";

/** The id of a new client, which comes back to `/live` of the dashboard. */
const register = async (dashboard, name) => {
  const response = await fetch(`${dashboard}/oauth/register`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ client_name: name, redirect_uris: [`${dashboard}/live`] }) });
  assert.equal(response.status, 201);
  return (await response.json()).client_id;
};

/** Connects a program called `name`, as often as told. `look` sees the page that asks for consent. */
export const connectProgram = async (tools, name, look = async () => undefined, times = 1) => {
  const client = await register(tools.dashboard, name);
  for (let n = 0; n < times; n += 1) await connect(tools, client, look);
};

const connect = async ({ page, dashboard }, client, look) => {
  const verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
  const asked = { response_type: "code", client_id: client, redirect_uri: `${dashboard}/live`, state: "1", code_challenge: "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", code_challenge_method: "S256", resource: `${dashboard}/mcp` };
  await page.goto(`${dashboard}/oauth/authorize?${new URLSearchParams(asked)}`);
  await look();
  await page.getByRole("button", { name: "Connect" }).click();
  await page.waitForURL((url) => url.pathname === "/live" && url.searchParams.has("code"));
  const code = new URL(page.url()).searchParams.get("code");
  const body = new URLSearchParams({ grant_type: "authorization_code", client_id: client, code, code_verifier: verifier, redirect_uri: asked.redirect_uri });
  assert.equal((await fetch(`${dashboard}/oauth/token`, { method: "POST", body })).status, 200);
};
