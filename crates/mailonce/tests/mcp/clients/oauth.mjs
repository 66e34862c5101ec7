// The official npm clients sign in with OAuth: they find the server, register, get tokens and renew them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from "@modelcontextprotocol/client";

const { url, signIn } = JSON.parse(readFileSync(0, "utf8"));
const clientInfo = { name: "mailonce-test", version: "1.0.0" };

/** The person's browser: signs in once, and agrees on the consent page. */
async function openBrowser(link) {
  const signedIn = await fetch(link, { method: "POST", redirect: "manual" });
  assert.equal(signedIn.status, 303);
  const cookie = signedIn.headers.get("set-cookie").split(";")[0];
  return async page => {
    const shown = await fetch(page, { headers: { cookie } });
    const html = await shown.text();
    assert.equal(shown.status, 200, html);
    assert.match(html, /Connect “Test client”\?/);
    const text = value => value.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&amp;", "&");
    const form = new URLSearchParams({ decision: "allow", inboxes: "all" });
    for (const [, name, value] of html.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)">/g)) form.append(name, text(value));
    for (const [, value] of html.matchAll(/name="grant" value="([^"]+)" checked/g)) form.append("grant", value);
    const answer = await fetch(new URL("/oauth/authorize", page), { method: "POST", headers: { cookie }, body: form, redirect: "manual" });
    assert.equal(answer.status, 303, await answer.text());
    return new URL(answer.headers.get("location")).searchParams;
  };
}

/** Keeps what the client stores, in memory. */
class Provider {
  redirectUrl = "http://127.0.0.1:39017/callback";
  clientMetadata = { client_name: "Test client", redirect_uris: [this.redirectUrl], grant_types: ["authorization_code", "refresh_token"] };
  state = () => "the state";
  clientInformation = () => this.client;
  saveClientInformation = client => { this.client = client; };
  tokens = () => this.stored;
  saveTokens = tokens => { this.stored = tokens; this.saved = (this.saved ?? 0) + 1; };
  redirectToAuthorization = page => { this.page = page; };
  saveCodeVerifier = verifier => { this.verifier = verifier; };
  codeVerifier = () => this.verifier;
  saveDiscoveryState = found => { this.found = found; };
  discoveryState = () => this.found;
}

const agree = await openBrowser(signIn);
for (const [tag, Client, Http, finish] of [
  ["v1", ClientV1, HttpV1, (transport, params) => transport.finishAuth(params.get("code"))],
  ["v2", ClientV2, HttpV2, (transport, params) => transport.finishAuth(params)],
]) {
  const provider = new Provider();
  const transport = new Http(new URL(url), { authProvider: provider });
  await assert.rejects(new Client(clientInfo).connect(transport));
  assert.equal(provider.page.searchParams.get("resource"), url);
  const params = await agree(provider.page);
  assert.equal(params.get("state"), "the state");
  await finish(transport, params);
  const client = new Client(clientInfo);
  await client.connect(new Http(new URL(url), { authProvider: provider }));
  assert.equal((await client.listTools()).tools.length, 10);
  const mail = { to: `ann-${tag}@people.test`, subject: "Hi", text: "Hello.", type: "greeting", entity: tag };
  const sent = await client.callTool({ name: "send_email", arguments: mail });
  assert.equal(sent.structuredContent.dedupe.outcome, "first", JSON.stringify(sent));
  // The access token has expired: the client renews it without the person.
  const before = provider.stored;
  provider.stored = { ...before, access_token: before.access_token.slice(0, -1) };
  const again = await client.callTool({ name: "send_email", arguments: mail });
  assert.equal(again.structuredContent.email, sent.structuredContent.email);
  assert.equal(provider.saved, 2);
  assert.notEqual(provider.stored.refresh_token, before.refresh_token);
  await client.close();
  console.log(tag);
}
