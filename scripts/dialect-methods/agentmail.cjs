// Which methods of AgentMail's SDK are called with what. Many exist three times: for the team, for a pod and for an inbox.
"use strict";
const http = require("node:http");
const { AgentMailClient } = require("agentmail");

const soon = () => new Date(Date.now() + 3_600_000);
const FILE = { filename: "a.txt", content: Buffer.from("abc").toString("base64") };
const first = (s, scope) => ({ "": [], "pods.": [s.pod], "inboxes.": [s.inbox] })[scope];

/** The rows of drafts that are not sent. */
const drafts = (scope) => [
  [`${scope}drafts.list`, (s) => first(s, scope), "drafts.0.draftId"],
  [`${scope}drafts.get`, (s) => [...first(s, scope), s.draft.draftId], "draftId"],
  [`${scope}drafts.getAttachment`, (s) => [...first(s, scope), s.draft.draftId, s.draft.attachments[0].attachmentId], "downloadUrl"],
];

const threads = (scope) => [
  ["prepare", (s) => receive(s, `thread ${scope}`)],
  [`${scope}threads.list`, (s) => first(s, scope), "threads.0.threadId"],
  [`${scope}threads.search`, (s) => [...first(s, scope), { q: "thread" }], "threads.0.threadId"],
  [`${scope}threads.get`, (s) => [...first(s, scope), s.message.threadId], "messages.0.messageId"],
  [`${scope}threads.getAttachment`, (s) => [...first(s, scope), s.message.threadId, s.message.attachments[0].attachmentId], "downloadUrl"],
  [`${scope}threads.update`, (s) => [...first(s, scope), s.message.threadId, { addLabels: ["seen"] }], "labels"],
  [`${scope}threads.delete`, (s) => [...first(s, scope), s.message.threadId], ""],
];

const lists = (scope) => [
  [`${scope}lists.create`, (s) => [...first(s, scope), "send", "block", { entry: "blocked.example" }], "entryType"],
  [`${scope}lists.list`, (s) => [...first(s, scope), "send", "block"], "entries.0.entry"],
  [`${scope}lists.get`, (s) => [...first(s, scope), "send", "block", "blocked.example"], "entry"],
  [`${scope}lists.delete`, (s) => [...first(s, scope), "send", "block", "blocked.example"], ""],
];

const webhooks = (scope) => [
  [`${scope}webhooks.create`, (s) => [...first(s, scope), { url: s.url, eventTypes: ["message.sent"] }], "secret", (s, data) => (s.webhook = data.webhookId)],
  [`${scope}webhooks.list`, (s) => first(s, scope), "webhooks.0.webhookId"],
  [`${scope}webhooks.get`, (s) => [...first(s, scope), s.webhook], "url"],
  [`${scope}webhooks.update`, (s) => [...first(s, scope), s.webhook, { eventTypes: ["message.bounced"] }], "eventTypes"],
  [`${scope}webhooks.updateHeaders`, (s) => [...first(s, scope), s.webhook, { headers: { "X-A": "1" } }], ""],
  [`${scope}webhooks.getHeaders`, (s) => [...first(s, scope), s.webhook], "headerNames.0"],
  [`${scope}webhooks.delete`, (s) => [...first(s, scope), s.webhook], ""],
];

const apiKeys = (scope) => [
  [`${scope}apiKeys.create`, (s) => [...first(s, scope), { name: "methods" }], "apiKey", (s, data) => (s.key = data.apiKeyId)],
  [`${scope}apiKeys.list`, (s) => first(s, scope), "apiKeys.0.prefix"],
  ...(scope === "" ? [["apiKeys.get", (s) => [s.key], "name"]] : []),
  [`${scope}apiKeys.update`, (s) => [...first(s, scope), s.key, { name: "renamed" }], "name"],
  [`${scope}apiKeys.delete`, (s) => [...first(s, scope), s.key], ""],
];

const domains = (scope) => [
  [`${scope}domains.create`, (s) => [...first(s, scope), { domain: `${scope.replace(".", "")}x.example.com` }], "records.0.value", (s, data) => (s.domain = data.domainId)],
  [`${scope}domains.list`, (s) => first(s, scope), "domains.0.domainId"],
  [`${scope}domains.get`, (s) => [...first(s, scope), s.domain], "status"],
  [`${scope}domains.getZoneFile`, (s) => [...first(s, scope), s.domain], ""],
  ...(scope === "" ? [["domains.getSetupLink", (s) => [s.domain], "supported"]] : []),
  [`${scope}domains.update`, (s) => [...first(s, scope), s.domain, { feedbackEnabled: true }], "domainId"],
  [`${scope}domains.verify`, (s) => [...first(s, scope), s.domain], ""],
  [`${scope}domains.delete`, (s) => [...first(s, scope), s.domain], ""],
];

const metrics = (scope) => [
  [`${scope}metrics.queryEvents`, (s) => [...first(s, scope), { eventTypes: ["message.received"] }], "message.received"],
  [`${scope}metrics.queryUsage`, (s) => [...first(s, scope), {}], scope === "inboxes." ? "inbox_count.0.value" : "pod_count.0.value"],
];

const inboxes = (scope) => [
  [`${scope}inboxes.create`, (s) => [...first(s, scope), { username: `methods-${scope.replace(".", "")}x` }], "inboxId", (s, data) => (s.other = data.inboxId)],
  [`${scope}inboxes.list`, (s) => first(s, scope), "inboxes.0.email"],
  [`${scope}inboxes.get`, (s) => [...first(s, scope), s.other], "email"],
  [`${scope}inboxes.update`, (s) => [...first(s, scope), s.other, { displayName: "Methods" }], "displayName"],
  [`${scope}inboxes.search`, (s) => [...first(s, scope), { q: "methods" }], "inboxes.0.inboxId"],
  [`${scope}inboxes.delete`, (s) => [...first(s, scope), s.other], ""],
];

/** Delivers a mail, and remembers its message. */
async function receive(s, subject) {
  s.count = (s.count ?? 0) + 1;
  await s.deliver(s.inbox, `a${s.count}`, subject);
  const { messages } = s.client.inboxes;
  s.message = await s.until(subject, async () => (await messages.list(s.inbox)).messages.find((one) => one.messageId === `<a${s.count}@x.test>`));
}

module.exports = {
  package: "agentmail",
  manifest: "../../package.json",
  goal: 120,
  client: ({ url, key }) => {
    const root = `${url}/compat/agentmail`;
    return new AgentMailClient({ apiKey: key, maxRetries: 0, environment: { http: root, websockets: root.replace("http", "ws") } });
  },
  hidden: ["fetch"],
  // A call without a body in its answer returns nothing.
  data: (answer) => answer ?? null,
  placeholders: (method) => ({
    "agent.signUp": [{ humanEmail: "x@example.com", username: "x" }],
    "agent.verify": [{ otpCode: "1" }],
    "providers.connect": ["x", {}],
    "providers.search": [{ q: "x" }],
    "pods.create": [{ name: "x" }],
    "inboxes.authorize": ["agent@mailonce.test", { authToken: "x", clientId: "x", redirectUri: "https://x.test", state: "x", codeChallenge: "x", codeChallengeMethod: "S256", responseType: "code", scope: "x" }],
    "inboxes.events.list": ["agent@mailonce.test"],
  })[method] ?? ["x"],
  end: (s) => s.hall?.close(),
  calls: [
    ["prepare", async (s) => {
      s.hall = http.createServer((request, response) => request.resume().on("end", () => response.end()));
      await new Promise((done) => s.hall.listen(0, "127.0.0.1", done));
      s.url = `http://127.0.0.1:${s.hall.address().port}/in`;
      s.pod = (await s.client.pods.list()).pods[0].podId;
      s.inbox = (await s.client.inboxes.create({ username: "agentmail-methods" })).inboxId;
    }],
    ["auth.me", () => [], "scopeId"],
    ["organizations.get", () => [], "inboxCount"],
    ["pods.list", () => [], "pods.0.podId"],
    ["pods.get", (s) => [s.pod], "podId"],
    ...inboxes(""),
    ...inboxes("pods."),
    ["prepare", (s) => receive(s, "messages")],
    ["inboxes.messages.list", (s) => [s.inbox], "messages.0.messageId"],
    ["inboxes.messages.search", (s) => [s.inbox, { q: "messages" }], "messages.0.messageId"],
    ["inboxes.messages.get", (s) => [s.inbox, s.message.messageId], "text"],
    ["inboxes.messages.batchGet", (s) => [s.inbox, { messageIds: [s.message.messageId] }], "messages.0.messageId"],
    ["inboxes.messages.getAttachment", (s) => [s.inbox, s.message.messageId, s.message.attachments[0].attachmentId], "downloadUrl"],
    ["inboxes.messages.getRaw", (s) => [s.inbox, s.message.messageId], "downloadUrl"],
    ["inboxes.messages.update", (s) => [s.inbox, s.message.messageId, { addLabels: ["seen"] }], "labels"],
    ["inboxes.messages.batchUpdate", (s) => [s.inbox, { messageIds: [s.message.messageId], addLabels: ["batch"] }], ""],
    ["inboxes.messages.send", (s) => [s.inbox, { to: "ada@example.com", subject: "a send", text: "x" }], "messageId"],
    ["inboxes.messages.forward", (s) => [s.inbox, s.message.messageId, { to: "carol@example.com", text: "x" }], "messageId"],
    ["inboxes.messages.reply", (s) => [s.inbox, s.message.messageId, { text: "Yes." }], "messageId"],
    ["prepare", (s) => receive(s, "all")],
    ["inboxes.messages.replyAll", (s) => [s.inbox, s.message.messageId, { text: "Yes." }], "messageId"],
    ["inboxes.messages.delete", (s) => [s.inbox, s.message.messageId], ""],
    ["inboxes.drafts.create", (s) => [s.inbox, { to: ["ada@example.com"], text: "x", attachments: [FILE], sendAt: soon() }], "attachments.0.size", (s, data) => (s.draft = data)],
    ...drafts("inboxes."),
    ...drafts("pods."),
    ...drafts(""),
    ["inboxes.drafts.update", (s) => [s.inbox, s.draft.draftId, { text: "y" }], "text"],
    ["inboxes.drafts.send", (s) => [s.inbox, s.draft.draftId, {}], "messageId"],
    ["prepare", async (s) => (s.draft = await s.client.inboxes.drafts.create(s.inbox, { text: "x" }))],
    ["inboxes.drafts.delete", (s) => [s.inbox, s.draft.draftId], ""],
    ...["", "pods.", "inboxes."].flatMap((scope) => [...threads(scope), ...lists(scope), ...webhooks(scope), ...apiKeys(scope), ...metrics(scope)]),
    ...domains(""),
    ...domains("pods."),
    ["websockets.connect", () => [], "socket", async (s, socket) => socket.close()],
  ],
};
