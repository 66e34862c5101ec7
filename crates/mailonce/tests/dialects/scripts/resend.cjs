// Calls every covered method of Resend's official Node SDK against mailonce.

const { Resend } = require("resend");
const { assert, watch, pause, until, receiver } = require(process.env.WALK);

// Internal methods of the client and those that its types mark as private.
const HIDDEN = [
  "logError", "fetchRequest", "post", "get", "put", "patch", "delete",
  "emails.receiving.forwardPassthrough", "emails.receiving.forwardWrapped", "emails.receiving.downloadRaw",
  "contacts.imports.buildCreateFormData", "contacts.imports.buildColumnMap", "contacts.imports.appendField",
  "templates.performCreate",
];
const resend = new Resend(process.env.KEY, { baseUrl: process.env.URL });
const { all, worked } = watch(resend, HIDDEN);

/** The data of a response that must succeed. */
async function good(answer) {
  const { data, error } = await answer;
  assert.equal(error, null, JSON.stringify(error));
  return data;
}

/** The error of a response that must fail. */
async function bad(answer, statusCode, name) {
  const { data, error } = await answer;
  assert.equal(data, null);
  assert.deepEqual([error.statusCode, error.name], [statusCode, name], JSON.stringify(error));
  assert.equal(typeof error.message, "string");
  return error.message;
}

const mail = (words = {}) => ({
  from: "Agent <agent@mailonce.test>", to: ["ada@example.com"], subject: "Order 1", text: "Thank you.", ...words,
});

async function sends() {
  const first = await good(resend.emails.send(mail(), { idempotencyKey: "node-1" }));
  const again = await resend.emails.create(mail({ to: "ada@example.com" }), { idempotencyKey: "node-1" });
  assert.equal(again.data.id, first.id);
  assert.equal(again.headers["idempotent-replayed"], "true");
  const message = await bad(resend.emails.send(mail({ text: "Other." }), { idempotencyKey: "node-1" }), 409, "invalid_idempotent_request");
  assert.equal(message, "Same idempotency key used with a different request payload.");
  const race = await Promise.all(
    Array.from({ length: 50 }, () => good(resend.emails.send(mail({ subject: "Race" }), { idempotencyKey: "node-race" }))),
  );
  assert.equal(new Set(race.map((one) => one.id)).size, 1);
  // The three formats in which SDKs send a file make the same mail.
  const files = [{ filename: "a.txt", content: Buffer.from("abc"), contentType: "text/plain" }];
  const filed = await good(resend.emails.send(mail({ subject: "File", attachments: files }), { idempotencyKey: "node-file" }));
  for (const content of ["YWJj", [97, 98, 99], { type: "Buffer", data: [97, 98, 99] }]) {
    const raw = await resend.post("/emails", mail({ subject: "File", attachments: [{ filename: "a.txt", content, content_type: "text/plain" }] }), { idempotencyKey: "node-file" });
    assert.equal(raw.data && raw.data.id, filed.id, JSON.stringify(raw.error));
  }
  const listed = await good(resend.emails.attachments.list({ emailId: filed.id }));
  assert.equal(listed.data.length, 1);
  const file = await good(resend.emails.attachments.get({ emailId: filed.id, id: listed.data[0].id }));
  assert.deepEqual([file.object, file.filename, file.size, file.content_type], ["attachment", "a.txt", 3, "text/plain"]);
  assert.equal(await (await fetch(file.download_url)).text(), "abc");
  assert.equal((await fetch(file.download_url.slice(0, -1) + (file.download_url.endsWith("0") ? "1" : "0"))).status, 404);
  return first;
}

async function batches() {
  const items = [mail({ subject: "One" }), mail({ subject: "Two", to: "bob@example.com" })];
  const first = await good(resend.batch.send(items, { idempotencyKey: "node-batch" }));
  assert.equal(first.data.length, 2);
  assert.deepEqual(await good(resend.batch.create(items, { idempotencyKey: "node-batch" })), first);
  await bad(resend.batch.send([items[0]], { idempotencyKey: "node-batch" }), 409, "invalid_idempotent_request");
  await bad(resend.batch.send([...items, mail({ to: [] })]), 422, "missing_required_field");
  const some = await good(resend.batch.send([items[0], mail({ to: "nobody" })], { batchValidation: "permissive" }));
  assert.deepEqual([some.data.length, some.errors.length, some.errors[0].index], [1, 1, 1]);
  assert.match(some.errors[0].message, /^Invalid `to` field\./);
  await bad(resend.batch.send([]), 422, "validation_error");
  await bad(resend.batch.send(Array.from({ length: 101 }, () => mail())), 422, "validation_error");
}

async function schedules() {
  const { id } = await good(resend.emails.send(mail({ subject: "Later", scheduledAt: "in 1 hour" }), { idempotencyKey: "node-later" }));
  const email = await good(resend.emails.get(id));
  assert.equal(email.last_event, "scheduled");
  assert.ok(Date.parse(email.scheduled_at) > Date.now());
  const at = new Date(Date.now() + 7_200_000).toISOString();
  assert.deepEqual(await good(resend.emails.update({ id, scheduledAt: at })), { object: "email", id });
  assert.equal(Date.parse((await good(resend.emails.get(id))).scheduled_at), Date.parse(at));
  assert.deepEqual(await good(resend.emails.cancel(id)), { object: "email", id });
  assert.equal((await good(resend.emails.get(id))).last_event, "canceled");
  // A replay of a cancelled email is not a success.
  const again = resend.emails.send(mail({ subject: "Later", scheduledAt: "in 1 hour" }), { idempotencyKey: "node-later" });
  assert.ok((await bad(again, 422, "validation_error")).includes(id));
  await bad(resend.emails.update({ id, scheduledAt: at }), 422, "validation_error");
}

async function reads(first) {
  const email = await until("sent", async () => {
    const email = await good(resend.emails.get(first.id));
    return email.last_event === "sent" && email;
  });
  assert.equal(email.object, "email");
  assert.deepEqual([email.from, email.to, email.subject, email.text, email.html], ["Agent <agent@mailonce.test>", ["ada@example.com"], "Order 1", "Thank you.", null]);
  assert.match(email.message_id, /^<.+@mailonce\.test>$/);
  const page = await good(resend.emails.list({ limit: 3 }));
  assert.deepEqual([page.object, page.has_more, page.data.length], ["list", true, 3]);
  const after = await good(resend.emails.list({ limit: 100, after: page.data[1].id }));
  assert.equal(after.data[0].id, page.data[2].id);
  const before = await good(resend.emails.list({ limit: 2, before: page.data[2].id }));
  assert.deepEqual(before.data.map((one) => one.id), page.data.slice(0, 2).map((one) => one.id));
  assert.equal(before.has_more, false);
  // An email with an unknown outcome is not shown as sent, and a failed one is shown as failed.
  const doubtful = mail({ to: "unknown@sandbox.mailonce.test", subject: "Doubt" });
  const { id } = await good(resend.emails.send(doubtful, { idempotencyKey: "node-doubt" }));
  const both = [doubtful, mail({ subject: "Sure" })];
  const [inBatch] = (await good(resend.batch.send(both, { idempotencyKey: "node-doubts" }))).data;
  for (const one of [id, inBatch.id]) await until("delayed", async () => (await good(resend.emails.get(one))).last_event === "delivery_delayed");
  // A replay of an email with an unknown outcome is not a success.
  assert.match(await bad(resend.emails.send(doubtful, { idempotencyKey: "node-doubt" }), 409, "concurrent_idempotent_requests"), /it is unknown whether it was delivered/);
  await bad(resend.batch.send(both, { idempotencyKey: "node-doubts" }), 409, "concurrent_idempotent_requests");
  const refused = await good(resend.emails.send(mail({ to: "refuse@sandbox.mailonce.test", subject: "No" })));
  await until("failed", async () => (await good(resend.emails.get(refused.id))).last_event === "failed");
}

async function receiving() {
  const page = await until("mail", async () => {
    const page = await good(resend.emails.receiving.list({ limit: 100 }));
    return page.data.length >= 3 && page;
  });
  const item = page.data.find((one) => one.subject === "With a file");
  const mail = await good(resend.emails.receiving.get(item.id));
  assert.deepEqual([mail.object, mail.from, mail.received_for], ["email", "Bob <bob@example.org>", ["agent@mailonce.test"]]);
  assert.match(mail.text, /See the file/);
  assert.equal(mail.headers.subject, "With a file");
  const raw = await (await fetch(mail.raw.download_url)).text();
  assert.match(raw, /^Subject: With a file/m);
  const files = await good(resend.emails.receiving.attachments.list({ emailId: item.id }));
  const file = await good(resend.emails.receiving.attachments.get({ emailId: item.id, id: files.data[0].id }));
  assert.equal(await (await fetch(file.download_url)).text(), "hello\n");
  const second = await good(resend.emails.receiving.list({ limit: 1, after: page.data[0].id }));
  assert.equal(second.data[0].id, page.data[1].id);
  const newer = await good(resend.emails.receiving.list({ limit: 1, before: page.data[1].id }));
  assert.equal(newer.data[0].id, page.data[0].id);
  const passed = { emailId: item.id, to: "carol@example.com", from: "agent@mailonce.test" };
  const first = await good(resend.emails.receiving.forward(passed, { idempotencyKey: "node-forward" }));
  assert.equal((await good(resend.emails.receiving.forward(passed, { idempotencyKey: "node-forward" }))).id, first.id);
  await good(resend.emails.receiving.forward({ ...passed, passthrough: false, text: "For you" }));
}

async function inboxes() {
  const made = await good(resend.inboxes.create({ emailAddress: "node@mailonce.test", name: "node", fromName: "Node" }));
  assert.equal(made.object, "inbox");
  assert.ok((await good(resend.inboxes.list())).data.some((one) => one.email_address === "node@mailonce.test"));
  assert.equal((await good(resend.inboxes.get("node@mailonce.test"))).id, made.id);
  await good(resend.inboxes.update(made.id, { fromName: "Other" }));
  assert.equal((await good(resend.inboxes.get(made.id))).from_name, "Other");
  assert.deepEqual(await good(resend.inboxes.remove(made.id)), { object: "inbox", id: made.id, deleted: true });
  const inbox = { emailAddress: "agent@mailonce.test" };
  const threads = await good(resend.inboxes.threads.list(inbox));
  const thread = { ...inbox, threadId: threads.data.find((one) => one.subject === "A question for node").id };
  assert.equal((await good(resend.inboxes.threads.get(thread))).folder, "inbox");
  const [question] = (await good(resend.inboxes.threads.emails.list(thread))).data;
  const email = { ...thread, emailId: question.id };
  assert.equal((await good(resend.inboxes.threads.emails.get(email))).direction, "inbound");
  const reply = await good(resend.inboxes.threads.emails.reply({ ...email, text: "An answer" }));
  assert.equal((await good(resend.inboxes.threads.emails.reply({ ...email, text: "An answer" }))).id, reply.id);
  const other = await bad(resend.inboxes.threads.emails.reply({ ...email, text: "An answer in other words" }), 409, "invalid_idempotent_request");
  assert.match(other, /already answered/);
  const threadEmails = await good(resend.inboxes.threads.emails.list(thread));
  assert.deepEqual(threadEmails.data.map((one) => one.direction), ["outbound", "inbound"]);
  await good(resend.inboxes.threads.emails.forward({ ...email, to: "carol@example.com", text: "Look" }));
  const lists = async (words) => (await good(resend.inboxes.threads.list({ ...inbox, ...words }))).data.some((one) => one.id === thread.threadId);
  assert.deepEqual([await lists({ folders: ["archive"] }), await lists({ folders: ["archive", "sent"] }), await lists({ folders: ["spam"] })], [false, true, false]);
  assert.deepEqual([await lists({ read: true }), await lists({ read: false })], [true, false]);
  await bad(resend.inboxes.threads.list({ ...inbox, folders: ["nowhere"] }), 422, "validation_error");
  await bad(resend.inboxes.threads.list({ ...inbox, labels: ["nothing"] }), 404, "not_found");
  assert.equal((await good(resend.inboxes.threads.update({ ...thread, folder: "archive" }))).folder, "archive");
  assert.deepEqual([await lists(), await lists({ folders: ["archive"] })], [false, true]);
  await bad(resend.inboxes.threads.emails.reply({ ...email, text: "x", cc: "x@example.com" }), 422, "validation_error");
}

async function webhooks() {
  const webhookServer = await receiver();
  assert.match(await bad(resend.webhooks.create({ endpoint: "x", events: ["email.sent"] }), 422, "validation_error"), /^The `endpoint` field is not a URL/);
  const made = await good(resend.webhooks.create({ endpoint: webhookServer.url, events: ["email.sent", "email.failed", "email.scheduled", "email.opened"] }));
  assert.match(made.signing_secret, /^whsec_/);
  const sent = await good(resend.emails.send(mail({ subject: "Told", tags: [{ name: "run", value: "42" }] }), { idempotencyKey: "node-told" }));
  const delivery = await until("webhook", () => webhookServer.received.find(({ body }) => body.includes(sent.id)));
  const deliveryHeaders = { id: delivery.headers["svix-id"], timestamp: delivery.headers["svix-timestamp"], signature: delivery.headers["svix-signature"] };
  const verify = (payload, webhookSecret) => resend.webhooks.verify({ payload, headers: deliveryHeaders, webhookSecret });
  const event = verify(delivery.body, made.signing_secret);
  assert.deepEqual(Object.keys(event).sort(), ["created_at", "data", "type"]);
  assert.deepEqual([event.type, event.data.email_id, event.data.to, event.data.tags], ["email.sent", sent.id, ["ada@example.com"], { run: "42" }]);
  assert.throws(() => verify(delivery.body.replace("email.sent", "email.lost"), made.signing_secret));
  const webhook = await good(resend.webhooks.get(made.id));
  assert.deepEqual([webhook.status, webhook.endpoint, webhook.signing_secret, webhook.events.length], ["enabled", webhookServer.url, made.signing_secret, 4]);
  assert.equal((await good(resend.webhooks.list())).data[0].id, made.id);
  const [logged] = (await good(resend.webhooks.events.list({ webhookId: made.id }))).data;
  assert.equal(logged.id, delivery.headers["svix-id"]);
  const one = { webhookId: made.id, eventId: logged.id };
  assert.deepEqual((await good(resend.webhooks.events.get(one))).payload, event);
  await until("attempt", async () => (await good(resend.webhooks.events.attempts.list(one))).data[0]?.http_status_code === 200);
  const rotated = await good(resend.webhooks.rotateSigningSecret(made.id));
  assert.notEqual(rotated.signing_secret, made.signing_secret);
  await until("success", async () => (await good(resend.webhooks.events.get(one))).status === "success");
  assert.deepEqual(await good(resend.webhooks.events.replay(one)), { object: "webhook_event", id: logged.id });
  await until("replay", () => webhookServer.received.filter(({ headers }) => headers["svix-id"] === logged.id).length === 2);
  await good(resend.webhooks.update(made.id, { status: "disabled", events: ["email.sent"] }));
  assert.equal((await good(resend.webhooks.get(made.id))).status, "disabled");
  await bad(resend.webhooks.create({ endpoint: webhookServer.url, events: ["email.eaten"] }), 422, "validation_error");
  assert.equal((await good(resend.webhooks.remove(made.id))).deleted, true);
  webhookServer.close();
}

async function managing() {
  const domain = await good(resend.domains.create({ name: "node.example.com" }));
  assert.ok(domain.records.some((one) => one.record === "DKIM" && one.type === "TXT"));
  assert.equal((await good(resend.domains.get(domain.id))).object, "domain");
  assert.ok((await good(resend.domains.list())).data.some((one) => one.name === "node.example.com"));
  assert.deepEqual(await good(resend.domains.verify(domain.id)), { object: "domain", id: domain.id });
  const key = await good(resend.apiKeys.create({ name: "node", permission: "sending_access", domain_id: domain.id }));
  const only = new Resend(key.token, { baseUrl: process.env.URL });
  await bad(only.emails.list(), 401, "restricted_api_key");
  await bad(only.emails.send(mail()), 403, "invalid_permission");
  await good(only.emails.send(mail({ from: "x@node.example.com" })));
  assert.deepEqual(await good(resend.apiKeys.update(key.id, { name: "renamed" })), { object: "api_key", id: key.id });
  assert.equal((await good(resend.apiKeys.list())).data.find((one) => one.id === key.id).name, "renamed");
  await bad(only.apiKeys.create({ name: "more" }), 401, "restricted_api_key");
  await bad(only.suppressions.add({ email: "x@example.com" }), 401, "restricted_api_key");
  await bad(only.apiKeys.update(key.id, { name: "mine" }), 401, "restricted_api_key");
  assert.deepEqual(await good(resend.domains.update({ id: domain.id, openTracking: false, tls: "opportunistic" })), { object: "domain", id: domain.id });
  await bad(resend.domains.update({ id: domain.id, clickTracking: true }), 422, "validation_error");
  await bad(resend.domains.update({ id: domain.id, tls: "enforced" }), 422, "validation_error");
  assert.equal((await good(resend.apiKeys.remove(key.id))).deleted, true);
  await bad(only.emails.send(mail({ from: "x@node.example.com" })), 403, "invalid_api_key");
  assert.equal((await good(resend.domains.remove(domain.id))).deleted, true);
}

/** The list of addresses that get no email. */
async function suppressions() {
  const added = await good(resend.suppressions.add({ email: "Gone@example.com" }));
  assert.equal((await good(resend.suppressions.add({ email: "gone@example.com" }))).id, added.id);
  const found = await good(resend.suppressions.get("gone@example.com"));
  assert.deepEqual([found.object, found.id, found.email, found.origin, found.source_id], ["suppression", added.id, "gone@example.com", "manual", null]);
  assert.equal((await good(resend.suppressions.get(added.id))).email, "gone@example.com");
  await bad(resend.emails.send(mail({ to: "gone@example.com" })), 422, "validation_error");
  const both = await good(resend.suppressions.batch.add({ emails: ["one@example.com", "two@example.com"] }));
  assert.equal(both.data.length, 2);
  const page = await good(resend.suppressions.list({ limit: 2 }));
  assert.deepEqual([page.object, page.has_more, page.data.map((one) => one.email)], ["list", true, ["two@example.com", "one@example.com"]]);
  const rest = await good(resend.suppressions.list({ limit: 2, after: page.data[1].id }));
  assert.deepEqual([rest.has_more, rest.data[0].id], [false, added.id]);
  const before = await good(resend.suppressions.list({ limit: 1, before: added.id }));
  assert.equal(before.data[0].email, "one@example.com");
  assert.deepEqual((await good(resend.suppressions.list({ origin: "bounce" }))).data, []);
  await bad(resend.suppressions.list({ origin: "dislike" }), 422, "validation_error");
  // Nothing is removed when one of the entries does not exist.
  await bad(resend.suppressions.batch.remove({ emails: ["one@example.com", "three@example.com"] }), 404, "not_found");
  assert.deepEqual((await good(resend.suppressions.batch.remove({ ids: both.data.map((one) => one.id) }))).data.map((one) => one.deleted), [true, true]);
  assert.deepEqual(await good(resend.suppressions.remove(added.id)), { object: "suppression", id: added.id, deleted: true });
  await bad(resend.suppressions.get("gone@example.com"), 404, "not_found");
  await bad(resend.suppressions.add({ email: "no address" }), 422, "validation_error");
  await good(resend.emails.send(mail({ to: "gone@example.com" })));
}

/** Labels, search, drafts and removal in an inbox. */
async function sorting() {
  const inbox = { emailAddress: "agent@mailonce.test" };
  const threads = (await good(resend.inboxes.threads.list({ ...inbox, folders: ["inbox", "archive"] }))).data;
  const thread = { ...inbox, threadId: threads.find((one) => one.subject === "With a file").id };
  await bad(resend.inboxes.threads.labels.add({ ...thread, labels: ["urgent"] }), 404, "not_found");
  assert.deepEqual(await good(resend.inboxes.labels.create({ ...inbox, name: "urgent", color: "#E93D82" })), { object: "inbox_label", id: "urgent" });
  await good(resend.inboxes.labels.create({ ...inbox, name: "later" }));
  for (const name of ["Later", "trash", ""]) await bad(resend.inboxes.labels.create({ ...inbox, name }), 422, "validation_error");
  const names = (answer) => answer.data.map((one) => one.name);
  assert.deepEqual(names(await good(resend.inboxes.threads.labels.add({ ...thread, labels: ["urgent"] }))), ["urgent"]);
  assert.deepEqual(names(await good(resend.inboxes.threads.labels.set({ ...thread, labels: ["later", "urgent"] }))), ["later", "urgent"]);
  assert.deepEqual(names(await good(resend.inboxes.threads.labels.remove({ ...thread, labelId: "later" }))), ["urgent"]);
  assert.equal((await good(resend.inboxes.labels.update({ ...inbox, labelId: "urgent", name: "soon" }))).id, "soon");
  assert.deepEqual((await good(resend.inboxes.threads.get(thread))).labels.map((one) => one.id), ["soon"]);
  assert.deepEqual(names(await good(resend.inboxes.labels.list(inbox))), ["later", "soon"]);
  const search = async (words) => (await good(resend.inboxes.threads.search({ ...inbox, folders: ["inbox", "archive"], ...words }))).data.map((one) => one.subject);
  assert.deepEqual(await search({ query: "see FILE" }), ["With a file"]);
  assert.deepEqual(await search({ query: "file nothing" }), []);
  assert.deepEqual([await search({ hasAttachment: true }), await search({ labels: ["soon"] })], [["With a file"], ["With a file"]]);
  assert.deepEqual([await search({ from: ["bob@example.org"], query: "Another" }), await search({ from: ["carol"], query: "Another" })], [["Another"], []]);
  assert.deepEqual(await search({ query: "file", endDate: "2020-01-01" }), []);
  await bad(resend.inboxes.threads.search({ ...inbox, startDate: "soon" }), 422, "validation_error");
  assert.equal((await good(resend.inboxes.labels.remove({ ...inbox, labelId: "soon" }))).deleted, true);
  assert.deepEqual((await good(resend.inboxes.threads.get(thread))).labels, []);
  assert.deepEqual(await good(resend.inboxes.threads.remove(thread)), { object: "inbox_thread", id: thread.threadId, deleted: true });
  assert.equal((await good(resend.inboxes.threads.get(thread))).folder, "trash");
  const lists = async (folders) => (await good(resend.inboxes.threads.list({ ...inbox, folders }))).data.some((one) => one.id === thread.threadId);
  assert.deepEqual([await lists(["inbox", "archive", "sent"]), await lists(["trash"])], [false, true]);
  await good(resend.inboxes.threads.update({ ...thread, folder: "inbox" }));
  assert.deepEqual([await lists(["inbox"]), await lists(["trash"])], [true, false]);
  await good(resend.inboxes.threads.update({ ...thread, folder: "trash" }));
  await drafts(inbox, threads.find((one) => one.subject === "Another").id);
}

async function drafts(inbox, threadId) {
  const { drafts } = resend.inboxes;
  const file = { filename: "d.txt", content: Buffer.from("draft file"), contentType: "text/plain" };
  const made = await good(drafts.create({ ...inbox, to: "kim@example.com", subject: "Draft", text: "One", attachments: [file] }, { idempotencyKey: "node-draft" }));
  assert.equal((await good(drafts.create({ ...inbox, to: "kim@example.com", subject: "Draft", text: "One", attachments: [file] }, { idempotencyKey: "node-draft" }))).id, made.id);
  const draft = { ...inbox, draftId: made.id };
  const seen = await good(drafts.get(draft));
  assert.deepEqual([seen.object, seen.type, seen.to, seen.text, seen.email_id], ["inbox_draft", "standalone", ["kim@example.com"], "One", null]);
  assert.deepEqual(seen.attachments.map(({ filename, size, content_type }) => [filename, size, content_type]), [["d.txt", 10, "text/plain"]]);
  assert.deepEqual((await good(drafts.list(inbox))).data.map((one) => [one.id, one.snippet]), [[made.id, "One"]]);
  await good(drafts.update({ ...draft, html: "<p>Two</p>", subject: null, attachments: null }));
  const changed = await good(drafts.get(draft));
  assert.deepEqual([changed.text, changed.html, changed.subject, changed.attachments], [null, "<p>Two</p>", null, []]);
  await bad(drafts.send(draft), 422, "missing_required_field");
  await good(drafts.update({ ...draft, subject: "Draft" }));
  await bad(drafts.send({ ...draft, headers: { "reply-to": "x@example.com" } }), 422, "validation_error");
  // A draft is sent once, under any key.
  const sends = await Promise.all(Array.from({ length: 10 }, (_, n) => good(drafts.send(draft, n % 2 ? { idempotencyKey: `node-draft-${n}` } : {}))));
  assert.equal(new Set(sends.map((one) => one.id)).size, 1);
  assert.equal((await good(drafts.send({ ...draft, headers: { "X-Other": "1" } }))).id, sends[0].id);
  await bad(drafts.get(draft), 404, "not_found");
  await bad(drafts.update({ ...draft, text: "Three" }), 409, "resource_locked");
  await bad(drafts.remove(draft), 409, "resource_locked");
  assert.deepEqual((await good(drafts.list(inbox))).data, []);
  // A draft without a recipient stays a draft.
  const empty = { ...inbox, draftId: (await good(drafts.create({ ...inbox, text: "To nobody" }))).id };
  await bad(drafts.send(empty), 422, "missing_required_field");
  assert.equal((await good(drafts.get(empty))).text, "To nobody");
  assert.deepEqual(await good(drafts.remove(empty)), { object: "inbox_draft", id: empty.draftId, deleted: true });
  const [question] = (await good(resend.inboxes.threads.emails.list({ ...inbox, threadId }))).data;
  const answer = { ...inbox, draftId: (await good(drafts.create({ ...inbox, threadId, replyToEmailId: question.id, text: "Yes." }))).id };
  assert.deepEqual([(await good(drafts.get(answer))).type, (await good(drafts.get(answer))).thread_id], ["reply", threadId]);
  await good(drafts.send(answer));
  assert.equal((await good(resend.inboxes.threads.emails.list({ ...inbox, threadId }))).data[0].direction, "outbound");
  await bad(drafts.create({ ...inbox, threadId, text: "x" }), 422, "validation_error");
}

/** Test addresses of Resend, which reach no next hop, and one event per email. */
async function simulations() {
  const webhookServer = await receiver();
  const types = ["email.sent", "email.delivered", "email.bounced", "email.complained", "email.suppressed", "email.failed"];
  const hook = await good(resend.webhooks.create({ endpoint: webhookServer.url, events: types }));
  const events = (id) => webhookServer.received.map(({ body, headers }) => ({ ...JSON.parse(body), svix: headers["svix-id"] })).filter((one) => one.data.email_id === id);
  for (const [name, last] of [["delivered", "delivered"], ["bounced+signup", "bounced"], ["complained", "complained"], ["suppressed", "suppressed"]]) {
    const { id } = await good(resend.emails.send(mail({ to: `${name}@resend.dev`, subject: `Test ${name}` })));
    await until(name, async () => (await good(resend.emails.get(id))).last_event === last);
    const expected = name === "suppressed" ? ["email.suppressed"] : ["email.sent", `email.${last}`];
    await until(`events of ${name}`, () => events(id).length >= expected.length);
    assert.deepEqual([...new Set(events(id).map((one) => one.type))].sort(), [...expected].sort());
  }
  // The same address works again: a simulated bounce suppresses nobody.
  await good(resend.emails.send(mail({ to: "bounced@resend.dev", subject: "Again" })));
  await bad(resend.emails.send(mail({ to: ["delivered@resend.dev", "ada@example.com"] })), 422, "validation_error");
  const { id } = await good(resend.emails.send(mail({ to: ["one@example.com", "two@example.com"], cc: "three@example.com", subject: "Many" })));
  await until("many", async () => (await good(resend.emails.get(id))).last_event === "sent");
  await until("the event", () => events(id).length);
  await pause(1_000);
  assert.deepEqual(events(id).map((one) => [one.type, one.data.to]), [["email.sent", ["one@example.com", "two@example.com"]]]);
  await good(resend.webhooks.remove(hook.id));
  webhookServer.close();
}

async function figures() {
  const metrics = await good(resend.emails.metrics({ dimensions: ["period", "domain"], metrics: ["sent", "bounced", "delivery_rate"] }));
  assert.deepEqual([metrics.object, metrics.granularity, metrics.metrics], ["metrics", "daily", ["sent", "bounced", "delivery_rate"]]);
  assert.ok(metrics.totals.sent > 5 && metrics.totals.bounced >= 1 && metrics.data[0].domain_name === "mailonce.test", JSON.stringify(metrics));
  assert.equal(metrics.data.reduce((sum, row) => sum + row.sent, 0), metrics.totals.sent);
  assert.equal((await good(resend.emails.metrics())).data, undefined);
  await bad(resend.emails.metrics({ metrics: ["opened"] }), 422, "validation_error");
  await bad(resend.emails.metrics({ timezone: "Europe/Berlin" }), 422, "validation_error");
}

async function templates() {
  const variables = [{ key: "NAME", type: "string" }, { key: "COUNT", type: "number", fallbackValue: 1 }];
  const wording = { name: "Node Welcome", subject: "Hello {{{NAME}}}", html: "<style>p{color:red}</style><p>{{{COUNT}}} {{x}} for {{{NAME}}}</p>", variables };
  const made = await good(resend.templates.create(wording));
  assert.equal(made.object, "template");
  assert.deepEqual(await good(resend.templates.publish(made.id)), { object: "template", id: made.id });
  const read = await good(resend.templates.get("node-welcome"));
  assert.deepEqual([read.id, read.status, read.subject, read.html], [made.id, "published", wording.subject, wording.html]);
  assert.deepEqual(read.variables.map(({ key, type, fallback_value }) => [key, type, fallback_value]), [["COUNT", "number", 1], ["NAME", "string", null]]);

  const send = (id, values, idempotencyKey) =>
    resend.emails.send({ from: "agent@mailonce.test", to: "ada@example.com", template: { id, variables: values } }, { idempotencyKey });
  const first = await good(send(made.id, { NAME: "<Ada>" }, "node-template"));
  const sent = await good(resend.emails.get(first.id));
  assert.deepEqual([sent.subject, sent.html], ["Hello <Ada>", "<style>p{color:red}</style><p>1 {{x}} for &lt;Ada&gt;</p>"]);
  assert.equal((await good(resend.templates.update(made.id, { subject: "Bye {{{NAME}}}" }))).id, made.id);
  assert.equal((await good(send(made.id, { NAME: "<Ada>" }, "node-template"))).id, first.id);
  await bad(send(made.id, { NAME: "Bob" }, "node-template"), 409, "invalid_idempotent_request");
  const newer = await good(send("node-welcome", { NAME: "Bob", COUNT: 2 }));
  assert.equal((await good(resend.emails.get(newer.id))).subject, "Bye Bob");
  assert.match(await bad(send("node-welcome", {}), 422, "validation_error"), /NAME/);
  await bad(resend.templates.create({ ...wording, name: "x", from: "a@example.com" }), 422, "validation_error");

  const copy = await good(resend.templates.duplicate(made.id));
  assert.ok((await good(resend.templates.list())).data.some((one) => one.id === copy.id && one.alias === "node-welcome-copy"));
  assert.equal((await good(resend.templates.remove(copy.id))).deleted, true);
  assert.equal((await good(resend.templates.remove("node-welcome"))).deleted, true);
  await bad(resend.templates.get(made.id), 404, "not_found");
}

async function errors() {
  assert.equal(await bad(new Resend("re_wrong_wrong_wrong", { baseUrl: process.env.URL }).emails.list(), 403, "invalid_api_key"), "API key is invalid.");
  assert.equal(await bad(resend.emails.send({}), 422, "missing_required_field"), "Missing `from` field.");
  assert.equal(await bad(resend.emails.send(mail({ text: undefined })), 422, "missing_required_field"), "Missing `html` or `text` field.");
  await bad(resend.emails.send(mail({ to: "no address" })), 422, "validation_error");
  await bad(resend.emails.send(mail({ subject: 7 })), 422, "validation_error");
  await bad(resend.emails.send(mail({ scheduledAt: "when pigs fly" })), 422, "validation_error");
  await bad(resend.emails.send(mail({ attachments: [{ filename: "a" }] })), 422, "invalid_attachment");
  await bad(resend.emails.send(mail({ attachments: [{ filename: "a", path: "https://example.com/a" }] })), 422, "invalid_attachment");
  await bad(resend.emails.send(mail({ template: { id: "x" }, text: undefined })), 422, "validation_error");
  await bad(resend.emails.send(mail(), { idempotencyKey: "x".repeat(257) }), 400, "invalid_idempotency_key");
  await bad(resend.emails.get("00000000-0000-7000-8000-000000000000"), 404, "not_found");
  await bad(resend.emails.get("x"), 422, "invalid_parameter");
  await bad(resend.emails.list({ limit: 101 }), 422, "validation_error");
}

/** Calls the methods that are not covered. Each must get an error of the dialect. */
async function refusals() {
  const refused = {};
  const words = {
    id: "x", name: "x", inboxId: "agent@mailonce.test", threadId: "x", draftId: "x", labelId: "x", labels: [], contactId: "x", segmentId: "x",
    emailId: "x", topics: [], email: "x@example.com", emails: [], from: "x@example.com", to: "x@example.com", subject: "x", html: "x", text: "x", segmentIds: [],
    automationId: "x", runId: "x", event: "x", file: new Blob(["x"]), columnMap: {}, variables: [], steps: [], connections: [], domainId: "x",
  };
  for (const [dotted, { thing, name }] of all) {
    if (worked.has(dotted)) continue;
    // Only this method takes lists where the others take names.
    const { error } = await thing[name](dotted === "emails.metrics" ? {} : words, words);
    refused[dotted] = error ? `${error.statusCode} ${error.name}` : "no error";
  }
  return refused;
}

(async () => {
  const first = await sends();
  await batches();
  await schedules();
  await reads(first);
  await receiving();
  await inboxes();
  await webhooks();
  await managing();
  await suppressions();
  await sorting();
  await simulations();
  await figures();
  await templates();
  await errors();
  const refused = await refusals();
  console.log(JSON.stringify({ methods: [...all.keys()].sort(), worked: [...worked].sort(), refused }));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
