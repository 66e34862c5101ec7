// An identity provider (OpenID Connect) for tests, with keys of its own. Everybody who signs in is Ada, in the given teams.
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { createServer } from "node:http";

const CLIENT = "mailonce";
const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });

const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

const idToken = (issuer, nonce, teams) => {
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: issuer, aud: CLIENT, sub: "ada-1", nonce, iat: now, exp: now + 300, name: "Ada", email: "ada@example.com", email_verified: true, role: "admin", teams };
  const signed = `${part({ alg: "RS256", kid: "key-1", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${sign("sha256", Buffer.from(signed), privateKey).toString("base64url")}`;
};

/** Starts the provider. `teams` are the names that it says; `signIn(url)` returns the cookie of a new session at the server. */
export const startProvider = async (teams) => {
  const codes = new Map();
  const answers = {
    "/.well-known/openid-configuration": () => ({ issuer, authorization_endpoint: `${issuer}/auth`, token_endpoint: `${issuer}/token`, jwks_uri: `${issuer}/keys` }),
    "/keys": () => ({ keys: [{ ...publicKey.export({ format: "jwk" }), kid: "key-1", use: "sig", alg: "RS256" }] }),
    "/token": (body) => {
      const form = new URLSearchParams(body);
      const asked = codes.get(form.get("code"));
      codes.delete(form.get("code"));
      assert.equal(createHash("sha256").update(form.get("code_verifier")).digest("base64url"), asked.get("code_challenge"));
      return { access_token: "unused", token_type: "Bearer", id_token: idToken(issuer, asked.get("nonce"), teams) };
    },
  };
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answers[new URL(request.url, issuer).pathname](body))));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const cookieOf = (response) => response.headers.getSetCookie().map((line) => line.split(";")[0]);
  const signIn = async (url) => {
    const start = await fetch(`${url}/sign-in/oidc`, { redirect: "manual" });
    const asked = new URL(start.headers.get("location")).searchParams;
    const code = randomUUID();
    codes.set(code, asked);
    const back = await fetch(`${url}/sign-in/oidc/callback?${new URLSearchParams({ code, state: asked.get("state") })}`, { redirect: "manual", headers: { cookie: cookieOf(start).join("; ") } });
    assert.ok(back.status < 400, `${back.status} ${await back.text()}`);
    return cookieOf(back).find((cookie) => cookie.startsWith("mailonce="));
  };
  const config = `[oidc]\nissuer = "${issuer}"\nclient_id = "${CLIENT}"\nrole_claim = "role"\nteam_claim = "teams"\n`;
  return { config, signIn, close: () => server.closeAllConnections() ?? server.close() };
};
