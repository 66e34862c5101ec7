// Which methods of Resend's SDK are called with what.
"use strict";
const http = require("node:http");
const { Resend } = require("resend");

const INBOX = { emailAddress: "agent@mailonce.test" };
const mail = (subject) => ({ from: "agent@mailonce.test", to: "ada@example.com", subject, text: "Thank you." });
const later = () => new Date(Date.now() + 3_600_000).toISOString();
const FILE = { filename: "a.txt", content: Buffer.from("abc"), contentType: "text/plain" };
// Members that the methods without a row want.
const WORDS = {
  id: "x", name: "x", inboxId: "agent@mailonce.test", contactId: "x", segmentId: "x", emailId: "x", topics: [], email: "x@example.com",
  from: "x@example.com", to: "x@example.com", subject: "x", html: "x", text: "x", segmentIds: [], automationId: "x", runId: "x", event: "x",
  file: new Blob(["x"]), columnMap: {}, steps: [], connections: [], domainId: "x",
};

module.exports = {
  package: "resend",
  manifest: "../package.json",
  goal: 70,
  client: ({ url, key }) => new Resend(key, { baseUrl: `${url}/compat/resend` }),
  // Internal methods of the client and those that its types mark as private.
  hidden: [
    "logError", "fetchRequest", "post", "get", "put", "patch", "delete",
    "emails.receiving.forwardPassthrough", "emails.receiving.forwardWrapped", "emails.receiving.downloadRaw",
    "contacts.imports.buildCreateFormData", "contacts.imports.buildColumnMap", "contacts.imports.appendField", "templates.performCreate",
  ],
  data: (answer) => (answer && "data" in answer && "error" in answer ? (answer.data ?? undefined) : answer),
  placeholders: () => [WORDS, WORDS],
  end: (s) => s.hall?.close(),
  calls: [
    ["prepare", async (s) => {
      for (const [id, subject] of [["r1", "A file"], ["r2", "A question"], ["r3", "A draft"], ["r4", "To remove"]]) await s.deliver("agent@mailonce.test", id, subject);
      s.received = await s.until("mail", async () => {
        const { data } = await s.client.emails.receiving.list({ limit: 100 });
        return data.data.length >= 4 && data.data;
      });
      s.hall = http.createServer((request, response) => request.resume().on("end", () => response.end()));
      await new Promise((done) => s.hall.listen(0, "127.0.0.1", done));
      s.thread = async (subject) => {
        const { data } = await s.client.inboxes.threads.list({ ...INBOX, folders: ["inbox", "archive"] });
        return { ...INBOX, threadId: data.data.find((one) => one.subject === subject).id };
      };
      s.question = async (subject) => {
        const thread = await s.thread(subject);
        return { ...thread, emailId: (await s.client.inboxes.threads.emails.list(thread)).data.data.at(-1).id };
      };
    }],
    ["emails.send", () => [{ ...mail("r send"), attachments: [FILE] }], "id", (s, data) => (s.email = data.id)],
    ["emails.create", () => [mail("r create")], "id"],
    ["emails.get", (s) => [s.email], "last_event"],
    ["emails.list", () => [], "data.0.id"],
    ["emails.attachments.list", (s) => [{ emailId: s.email }], "data.0.id", (s, data) => (s.file = data.data[0].id)],
    ["emails.attachments.get", (s) => [{ emailId: s.email, id: s.file }], "download_url"],
    ["emails.metrics", () => [{ dimensions: ["period"] }], "data.0.sent"],
    ["batch.send", () => [[mail("r one"), mail("r two")]], "data.1.id"],
    ["batch.create", () => [[mail("r three"), mail("r four")]], "data.1.id"],
    ["prepare", async (s) => (s.later = (await s.client.emails.send({ ...mail("r later"), scheduledAt: later() })).data.id)],
    ["emails.update", (s) => [{ id: s.later, scheduledAt: later() }], "id"],
    ["emails.cancel", (s) => [s.later], "id"],
    ["emails.receiving.list", () => [], "data.0.id"],
    ["emails.receiving.get", (s) => [s.received[0].id], "received_for"],
    ["emails.receiving.attachments.list", (s) => [{ emailId: s.received[0].id }], "data.0.id", (s, data) => (s.part = data.data[0].id)],
    ["emails.receiving.attachments.get", (s) => [{ emailId: s.received[0].id, id: s.part }], "download_url"],
    ["emails.receiving.forward", (s) => [{ emailId: s.received[0].id, to: "carol@example.com", from: "agent@mailonce.test" }], "id"],
    ["inboxes.create", () => [{ emailAddress: "methods@mailonce.test", name: "methods" }], "id", (s, data) => (s.inbox = data.id)],
    ["inboxes.list", () => [], "data.0.email_address"],
    ["inboxes.get", (s) => [s.inbox], "email_address"],
    ["inboxes.update", (s) => [s.inbox, { fromName: "Methods" }], "id"],
    ["inboxes.remove", (s) => [s.inbox], "deleted"],
    ["inboxes.threads.list", () => [INBOX], "data.0.email_count"],
    ["inboxes.threads.get", async (s) => [await s.thread("A question")], "folder"],
    ["inboxes.threads.search", () => [{ ...INBOX, query: "question" }], "data.0.matched_email_id"],
    ["inboxes.labels.create", () => [{ ...INBOX, name: "urgent", color: "#E93D82" }], "id"],
    ["inboxes.labels.list", () => [INBOX], "data.0.created_at"],
    ["inboxes.threads.labels.add", async (s) => [{ ...(await s.thread("A question")), labels: ["urgent"] }], "data.0.name"],
    ["inboxes.threads.labels.set", async (s) => [{ ...(await s.thread("A question")), labels: ["urgent"] }], "data.0.name"],
    ["inboxes.threads.labels.remove", async (s) => [{ ...(await s.thread("A question")), labelId: "urgent" }], "data"],
    ["inboxes.labels.update", () => [{ ...INBOX, labelId: "urgent", name: "soon" }], "id"],
    ["inboxes.labels.remove", () => [{ ...INBOX, labelId: "soon" }], "deleted"],
    ["inboxes.threads.emails.list", async (s) => [await s.thread("A question")], "data.0.direction"],
    ["inboxes.threads.emails.get", async (s) => [await s.question("A question")], "direction"],
    ["inboxes.threads.emails.reply", async (s) => [{ ...(await s.question("A question")), text: "An answer" }], "id"],
    ["inboxes.threads.emails.forward", async (s) => [{ ...(await s.question("A question")), to: "carol@example.com", text: "Look" }], "id"],
    ["inboxes.threads.update", async (s) => [{ ...(await s.thread("A question")), folder: "archive" }], "folder"],
    ["inboxes.threads.remove", async (s) => [await s.thread("To remove")], "deleted"],
    ["inboxes.drafts.create", () => [{ ...INBOX, to: "ada@example.com", subject: "r draft", text: "One", attachments: [FILE] }], "id", (s, data) => (s.draft = { ...INBOX, draftId: data.id })],
    ["inboxes.drafts.list", () => [INBOX], "data.0.snippet"],
    ["inboxes.drafts.get", (s) => [s.draft], "attachments.0.size"],
    ["inboxes.drafts.update", (s) => [{ ...s.draft, text: "Two" }], "id"],
    ["inboxes.drafts.send", (s) => [s.draft], "id"],
    ["prepare", async (s) => (s.draft = { ...INBOX, draftId: (await s.client.inboxes.drafts.create({ ...INBOX, text: "x" })).data?.id })],
    ["inboxes.drafts.remove", (s) => [s.draft], "deleted"],
    ["webhooks.create", (s) => [{ endpoint: `http://127.0.0.1:${s.hall.address().port}/in`, events: ["email.sent"] }], "signing_secret", (s, data) => (s.webhook = data.id)],
    ["webhooks.get", (s) => [s.webhook], "endpoint"],
    ["webhooks.list", () => [], "data.0.id"],
    ["webhooks.update", (s) => [s.webhook, { events: ["email.sent", "email.failed"] }], "id"],
    ["webhooks.rotateSigningSecret", (s) => [s.webhook], "signing_secret", (s, data) => (s.secret = data.signing_secret)],
    ["prepare", async (s) => {
      await s.client.emails.send(mail("r told"));
      s.event = await s.until("an event", async () => (await s.client.webhooks.events.list({ webhookId: s.webhook })).data.data[0]);
    }],
    ["webhooks.events.list", (s) => [{ webhookId: s.webhook }], "data.0.type"],
    ["webhooks.events.get", (s) => [{ webhookId: s.webhook, eventId: s.event.id }], "payload"],
    ["webhooks.events.replay", (s) => [{ webhookId: s.webhook, eventId: s.event.id }], "id"],
    ["webhooks.events.attempts.list", (s) => [{ webhookId: s.webhook, eventId: s.event.id }], "data"],
    ["webhooks.verify", async (s) => {
      const { createHmac } = require("node:crypto");
      const [payload, id, timestamp] = ['{"type":"email.sent"}', "x", String(Math.floor(Date.now() / 1_000))];
      const hmac = createHmac("sha256", Buffer.from(s.secret.slice("whsec_".length), "base64")).update(`${id}.${timestamp}.${payload}`);
      return [{ payload, headers: { id, timestamp, signature: `v1,${hmac.digest("base64")}` }, webhookSecret: s.secret }];
    }, "type"],
    ["webhooks.remove", (s) => [s.webhook], "deleted"],
    ["domains.create", () => [{ name: "resend.example.com" }], "records", (s, data) => (s.domain = data.id)],
    ["domains.get", (s) => [s.domain], "object"],
    ["domains.list", () => [], "data.0.name"],
    ["domains.update", (s) => [{ id: s.domain, openTracking: false, tls: "opportunistic" }], "id"],
    ["domains.verify", (s) => [s.domain], "id"],
    ["domains.remove", (s) => [s.domain], "deleted"],
    ["apiKeys.create", () => [{ name: "methods", permission: "sending_access" }], "token", (s, data) => (s.key = data.id)],
    ["apiKeys.list", () => [], "data.0.name"],
    ["apiKeys.update", (s) => [s.key, { name: "renamed" }], "id"],
    ["apiKeys.remove", (s) => [s.key], "deleted"],
    ["suppressions.add", () => [{ email: "gone@example.com" }], "id", (s, data) => (s.suppression = data.id)],
    ["suppressions.list", () => [], "data.0.origin"],
    ["suppressions.get", () => ["gone@example.com"], "created_at"],
    ["suppressions.remove", (s) => [s.suppression], "deleted"],
    ["suppressions.batch.add", () => [{ emails: ["one@example.com", "two@example.com"] }], "data.1.id"],
    ["suppressions.batch.remove", () => [{ emails: ["one@example.com", "two@example.com"] }], "data.1.deleted"],
    ["templates.create", () => [{ name: "methods", html: "<p>Hello {{{NAME}}}</p>", variables: [{ key: "NAME", type: "string" }] }], "id", (s, data) => (s.template = data.id)],
    ["templates.get", (s) => [need(s.template)], "html"],
    ["templates.list", () => [], "data.0.name"],
    ["templates.update", (s) => [need(s.template), { html: "<p>Hi</p>" }], "id"],
    ["templates.publish", (s) => [need(s.template)], "id"],
    ["templates.duplicate", (s) => [need(s.template)], "id"],
    ["templates.remove", (s) => [need(s.template)], "deleted"],
  ],
};

/** An id that an earlier call must have returned. */
function need(id) {
  if (!id) throw new Error("an earlier call failed");
  return id;
}
