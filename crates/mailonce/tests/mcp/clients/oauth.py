# The official PyPI client signs in with OAuth: it finds the server, registers, gets tokens and renews them.
import asyncio, html, json, re, sys, time
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

config = json.load(sys.stdin)
REDIRECT = "http://127.0.0.1:39018/callback"


class Storage:
    """Keeps what the client stores, in memory."""

    tokens = None
    client = None
    saved = 0

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens, self.saved = tokens, self.saved + 1

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Browser:
    """The person's browser: signs in once, and agrees on the consent page."""

    async def open(self, link):
        self.http = httpx2.AsyncClient(follow_redirects=False)
        signed_in = await self.http.post(link)
        assert signed_in.status_code == 303, signed_in.text
        self.cookie = {"Cookie": signed_in.headers["set-cookie"].split(";")[0]}

    async def agree(self, page):
        shown = await self.http.get(page, headers=self.cookie)
        assert shown.status_code == 200 and "Connect “Test client”?" in shown.text, shown.text
        hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', shown.text)
        form = [(name, html.unescape(value)) for name, value in hidden]
        form += [("grant", value) for value in re.findall(r'name="grant" value="([^"]+)" checked', shown.text)]
        body = urlencode(form + [("decision", "allow"), ("inboxes", "all")])
        headers = {**self.cookie, "Content-Type": "application/x-www-form-urlencoded"}
        answer = await self.http.post(urljoin(page, "/oauth/authorize"), content=body, headers=headers)
        assert answer.status_code == 303, answer.text
        values = parse_qs(urlsplit(answer.headers["location"]).query)
        self.result = AuthorizationCodeResult(code=values["code"][0], state=values["state"][0], iss=values["iss"][0])

    async def callback(self):
        return self.result


async def main():
    browser, storage = Browser(), Storage()
    await browser.open(config["signIn"])
    metadata = OAuthClientMetadata(client_name="Test client", redirect_uris=[REDIRECT])
    provider = OAuthClientProvider(config["url"], metadata, storage, browser.agree, browser.callback)
    for mode in ("2026-07-28", "legacy"):
        http = httpx2.AsyncClient(auth=provider, timeout=60)
        async with Client(streamable_http_client(config["url"], http_client=http), mode=mode) as client:
            assert len((await client.list_tools()).tools) == 10
            mail = {"to": f"ann-py-{mode}@people.test", "subject": "Hi", "text": "Hello.", "type": "greeting", "entity": f"py-{mode}"}
            sent = (await client.call_tool("send_email", mail)).structured_content
            assert sent["dedupe"]["outcome"] == "first", sent
            # The access token has expired: the client renews it without the person.
            before, saved = storage.tokens.refresh_token, storage.saved
            provider.context.token_expiry_time = time.time() - 1
            again = (await client.call_tool("send_email", mail)).structured_content
            assert again["email"] == sent["email"], again
            assert storage.saved == saved + 1 and storage.tokens.refresh_token != before
        print(mode)


asyncio.run(main())
