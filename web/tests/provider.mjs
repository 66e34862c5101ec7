// An identity provider (OpenID Connect) for tests: `oidc-provider` on this machine, with its own pages for log-in and consent.
// It demands PKCE and signs with RS256.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { Provider } from "oidc-provider";

const CLIENT = "mailonce";

const newKey = () => ({ ...generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" });

/** The pages of the provider ask another host for a font, and Chromium asks for an icon. */
const withoutExtras = async (ctx, next) => {
  await next();
  if (ctx.path === "/favicon.ico") ctx.status = 204;
  if (typeof ctx.body === "string") ctx.body = ctx.body.replace(/@import url\(.*?\);/, "");
};

/**
 * Starts the provider for the server at `url`. `accounts` has the claims of each account by its name, and can be changed.
 * The file with the client's secret is written to `folder`. `rotateKeys()` makes the provider start again with another key;
 * it forgets who is logged in.
 */
export const startProvider = async (url, folder, accounts) => {
  const [secret, file] = [randomUUID(), join(folder, "client-secret")];
  await writeFile(file, secret);
  let handle;
  const server = createServer((request, response) => handle(request, response));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const rotateKeys = () => {
    const provider = new Provider(issuer, {
      clients: [{ client_id: CLIENT, client_secret: secret, redirect_uris: [`${url}/sign-in/oidc/callback`], grant_types: ["authorization_code"], response_types: ["code"] }],
      jwks: { keys: [newKey()] },
      cookies: { keys: [randomUUID()] },
      claims: { openid: ["sub"], profile: ["name", "groups", "teams"], email: ["email", "email_verified"] },
      // Without this, claims are only in the answer of the user info endpoint.
      conformIdTokenClaims: false,
      pkce: { required: () => true },
      findAccount: (_, id) => accounts[id] && { accountId: id, claims: () => ({ sub: id, ...accounts[id] }) },
      ttl: { Session: 600, Interaction: 600, Grant: 600, IdToken: 300, AccessToken: 300 },
    });
    provider.use(withoutExtras);
    handle = provider.callback();
  };
  rotateKeys();
  const config = (more) => `[oidc]\nissuer = "${issuer}"\nclient_id = "${CLIENT}"\nclient_secret_file = ${JSON.stringify(file)}\n${more}`;
  return { issuer, config, rotateKeys, close: () => server.closeAllConnections() ?? server.close() };
};

/** Opens `/sign-in` of the server and goes to the provider. */
export const openProvider = async (page, url) => {
  await page.goto(`${url}/sign-in`);
  await page.getByRole("link", { name: "Sign in with 127.0.0.1" }).click();
  await page.waitForURL((now) => now.pathname !== "/sign-in");
};

/** Signs in at the server with an account of the provider, which asks for log-in and consent when it has to. */
export const signInWith = async (page, url, account) => {
  await openProvider(page, url);
  await answerProvider(page, url, account);
};

/** Answers what the provider asks, until the browser is back at the server. */
export const answerProvider = async (page, url, account) => {
  while (!page.url().startsWith(url)) {
    const before = page.url();
    const login = page.getByPlaceholder("Enter any login");
    const button = page.getByRole("button", { name: /^(Sign-in|Continue)$/ });
    await button.waitFor();
    if (await login.count()) {
      await login.fill(account);
      await page.getByPlaceholder("and password").fill("anything");
    }
    await Promise.all([page.waitForURL((now) => now.href !== before), button.click()]);
  }
};
