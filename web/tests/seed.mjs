// Fills a development server with what a small shop with three agents would have: emails in many states, duplicates,
// inboxes with messages and a code, a thread, webhooks that fail, a stop, budgets, rules and people.
import { createServer } from "node:http";
import { api, eventually, SLOW_MS } from "./browser.mjs";
import { compose, deliver } from "./smtp.mjs";

const SHOP = "shop@mailonce.test";
const SUPPORT = "support@mailonce.test";
const FAULTS = "sandbox.mailonce.test";

/** Each call has an id of its own, as a model's tool calls have. */
let calls = 0;
const callId = () => `toolu_01${(0x5eed_0000 + (calls += 7919)).toString(36)}`;

const send = (key, to, subject, text, more = {}) =>
  api("POST", "/v1/emails", { from: SHOP, to: [to], subject, text, ...more }, { ...(key && { "idempotency-key": key }), "mailonce-call-id": callId() });

/** One mail of a stranger to the support inbox. */
const receive = (name, from, subject, type, content) => deliver({
  from, to: SUPPORT,
  raw: compose({ From: `${name} <${from}>`, To: SUPPORT, Subject: subject, Date: new Date().toUTCString(), "Message-ID": `<${crypto.randomUUID()}@${from.split("@")[1]}>` }, [{ type: `${type}; charset=utf-8`, content }]),
});

const orderText = (number) => `Thank you for order ${number}.\nIt leaves our warehouse tomorrow.\n\nYour shop`;

const seedInboxes = async () => {
  const create = (address, name, agent) => api("POST", "/v1/inboxes", { address, name, agent, client_id: address });
  await create(SHOP, "Shop", "order agent");
  return create(SUPPORT, "Support", "support agent");
};

const seedEmails = async () => {
  const orders = [["ada@example.com", 4821], ["grace@example.com", 4822], ["linus@example.org", 4823], ["barbara@example.net", 4824], ["edsger@example.com", 4825], ["radia@example.org", 4826]];
  for (const [to, number] of orders) await send(`order-${number}-confirmation`, to, `Order ${number} confirmed`, orderText(number));
  await send("order-4821-shipped", "ada@example.com", "Order 4821 is on its way", "Your parcel arrives on Friday.", { html: "<h1>On its way</h1><p>Your parcel arrives on <b>Friday</b>.</p>" });
  await send("statement-2026-10", "grace@example.com", "Your statement for October", "The statement is attached.", { attachments: [{ filename: "statement.pdf", content: "JVBERi0xLjQK" }] });
  await send("newsletter-47", "radia@example.org", "What is new in week 47", "Three new things this week.", { scheduled_at: new Date(Date.now() + 26 * 3_600_000).toISOString() });
  const cancelled = await send("reminder-77", "edsger@example.com", "A reminder", "Your cart waits.", { scheduled_at: new Date(Date.now() + 3_600_000).toISOString() });
  await api("POST", `/v1/emails/${cancelled.id}/cancel`);
  for (const [name, subject] of [["unknown", "Contract 118 to sign"], ["refuse", "Order 4799 confirmed"], ["bounce", "Order 4800 confirmed"], ["complain", "What is new in week 46"], ["defer", "Order 4801 confirmed"]]) {
    await send(`fault-${name}`, `${name}@${FAULTS}`, subject, "Thank you.");
  }
  return orders;
};

const seedDuplicates = async () => {
  await Promise.all(Array.from({ length: 6 }, () => send("order-4821-confirmation", "ada@example.com", "Order 4821 confirmed", orderText(4821))));
  for (let count = 0; count < 3; count += 1) await send("order-4821-shipped", "ada@example.com", "Order 4821 is on its way", "Your parcel arrives on Friday.", { html: "<h1>On its way</h1><p>Your parcel arrives on <b>Friday</b>.</p>" });
  await send("statement-2026-10", "grace@example.com", "Your statement for October, corrected", "The corrected statement is attached.").catch(() => "a key mismatch is what we want");
  await send(null, "linus@example.org", "Your question about order 4823", "It was shipped on Monday. Sorry for the delay.");
  await send(null, "linus@example.org", "Your question about order 4823", "It was shipped on Monday, sorry for the delay.");
};

const rule = (name, field, operator, value, actions, more = {}) =>
  api("POST", "/v1/rules", { name, direction: "outbound", match: { conditions: [{ field, operator, value }] }, actions, ...more });

const seedPolicy = async () => {
  await rule("offers need a person", "subject", "contains", "offer", [{ type: "approve" }]);
  await rule("no mail to competitors", "recipient.domain", "in_list", ["rival.example", "other-shop.example"], [{ type: "block" }], { priority: 10 });
  await rule("look at attachments", "has_attachments", "is", "true", [{ type: "approve" }], { mode: "observe" });
  await rule("invoices go to a folder", "subject", "contains", "invoice", [{ type: "folder", value: "invoices" }, { type: "skip_agent" }], { direction: "inbound" });
  await api("POST", "/v1/budgets", { name: "all agents", scope: { team: true }, measure: "recipients", per: "day", limit: 500, at_limit: "hold" });
  await api("POST", "/v1/budgets", { name: "shop per hour", scope: { inbox: SHOP }, measure: "mails", per: "hour", limit: 24, at_limit: "refuse" });
  await api("POST", "/v1/budgets", { name: "one person", scope: { recipient: "any" }, measure: "mails", per: "day", limit: 20 });
  const old = await api("POST", "/v1/budgets", { name: "launch week", scope: { team: true }, measure: "new_recipients", per: "month", limit: 10_000, at_limit: "flag" });
  await api("PATCH", `/v1/budgets/${old.id}`, { rev: old.rev, enabled: false });
};

const seedDecisions = async () => {
  const offer = await send("offer-ada", "ada@example.com", "An offer for you: 20 % off", "Dear Ada,\n\nas a thank you we offer 20 % on your next order.\nThe code is THANKS20, valid until Sunday.\n\nYour shop", {
    cc: ["sales@mailonce.test"], reply_to: ["deals@partner.example"], attachments: [{ filename: "terms.pdf", content: "JVBERi0xLjQK", content_type: "application/pdf" }], html: "<p>Dear Ada,</p><p>as a thank you we offer <b>20 %</b> on your next order.<br>The code is <code>THANKS20</code>, valid until Sunday.</p><p>Your shop</p>",
  });
  await send("offer-barbara", "barbara@example.net", "An offer for old friends", "Dear Barbara,\n\nwe miss you. Here is 10 %.\n\nYour shop");
  await api("POST", "/v1/escalations", { question: "A customer asks for a refund of 430 €, more than I may promise. Shall I offer it?", entity: "refund-4822" });
  return offer;
};

const seedInbound = async (inbox) => {
  await receive("Grace", "grace@example.com", "Where is order 4822?", "text/plain", "Hello,\n\nI ordered two weeks ago and nothing has come.\nCan you look?\n\nGrace");
  await receive("Acme Login", "no-reply@acme.example", "Your sign-in code", "text/plain", "Your code is 402625.\nIt is valid for ten minutes.\n\nOr open https://acme.example/verify?token=ab12cd34");
  await receive("News", "news@example.org", "Invoice 2211 and other news", "text/html", '<h1>News</h1><p style="color:red">Our <a href="https://example.org/news">news</a> of this week.</p><img src="https://tracker.example/pixel.gif">');
  const messages = await eventually(async () => {
    const { data } = await api("GET", `/v1/inboxes/${inbox.id}/messages`);
    return data.length >= 3 && data;
  }, "three messages");
  const question = messages.find(({ subject }) => subject.startsWith("Where"));
  await api("POST", `/v1/messages/${question.id}/reply`, { text: "Dear Grace,\n\nit left us on Monday and should arrive tomorrow.\n\nSupport" });
  await api("POST", `/v1/threads/${question.thread_id}/lease`, { holder: "support agent 2", ttl_s: 600 });
  return { message: messages.find(({ subject }) => subject.startsWith("Your sign-in")), thread: question.thread_id };
};

/** A receiver that is broken for some events, on this machine. */
const startReceiver = () => new Promise((resolve) => {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      const broken = /"type":"email.(bounced|complained|held)"/.test(body);
      response.writeHead(broken ? 500 : 200, { "content-type": "application/json" }).end(broken ? '{"error":"column \\"reason\\" does not exist"}' : '{"ok":true}');
    });
  });
  server.listen(0, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}/hooks`, close: () => server.closeAllConnections() ?? server.close() }));
});

const seedWebhooks = async (receiver) => {
  const endpoint = await api("POST", "/v1/endpoints", { url: receiver.url, description: "Order service", events: ["email.*"] });
  const paused = await api("POST", "/v1/endpoints", { url: "http://127.0.0.1:9/crm", description: "CRM import", events: ["message.*", "escalation.*"] });
  await api("POST", `/v1/endpoints/${paused.id}/pause`);
  return endpoint;
};

const seedAccess = async () => {
  await api("POST", "/v1/people", { name: "Ada Byron", address: "ada@shop.example", role: "admin" });
  await api("POST", "/v1/people", { name: "Grace Hopper", address: "grace@shop.example", role: "approver" });
  await api("POST", "/v1/api-keys", { name: "order agent", scopes: ["send", "read"], inboxes: [SHOP], rate_per_s: 20 });
  await api("POST", "/v1/api-keys", { name: "support agent", scopes: ["send", "read", "reply"], inboxes: [SUPPORT] });
  const old = await api("POST", "/v1/api-keys", { name: "intern's script", scopes: ["send"] });
  await api("DELETE", `/v1/api-keys/${old.id}`);
  await api("POST", "/v1/domains", { name: "shop.example" });
  await api("POST", "/v1/notification-targets", { name: "#approvals", kind: "slack", url: "https://hooks.slack.com/services/T0/B0/x" });
};

/** Fills the server. Returns the ids of one object of each kind, and `close` for the receiver of webhooks. */
export const seed = async () => {
  const receiver = await startReceiver();
  const inbox = await seedInboxes();
  const endpoint = await seedWebhooks(receiver);
  await seedAccess();
  await seedPolicy();
  await seedEmails();
  await seedDuplicates();
  const offer = await seedDecisions();
  const { message, thread } = await seedInbound(inbox);
  const key = (await api("GET", "/v1/api-keys")).data.find(({ name, revoked_at: revoked }) => name === "support agent" && !revoked);
  await send("order-4821-confirmation", "ada@example.com", "Order 4821 confirmed", orderText(4821));
  await api("POST", "/v1/stops", { scope: { api_key: key.id }, reason: "Answers its own replies in a loop", mode: "wait" });
  const email = (await api("GET", "/v1/emails?key=order-4821-confirmation")).data[0];
  const open = await eventually(async () => {
    const { data } = await api("GET", "/v1/escalations?state=open&limit=100");
    return ["unknown", "approval", "asked"].every((reason) => data.some((entry) => entry.reason === reason)) && data;
  }, "an unknown email, a held one and a question", SLOW_MS);
  const question = (reason) => open.find((entry) => entry.reason === reason).id;
  await eventually(async () => (await api("GET", `/v1/endpoints/${endpoint.id}/notices?limit=100`)).data.some(({ attempts, state }) => state === "pending" && attempts.length > 1), "a notice with failed attempts", SLOW_MS);
  return { email: email.id, endpoint: endpoint.id, inbox: inbox.id, message: message.id, thread, unknown: question("unknown"), approval: open.find(({ about }) => about.email === offer.id).id, asked: question("asked"), close: receiver.close };
};
