// Calls every covered method of useSend's official Node SDK against mailonce.

const { UseSend } = require("usesend-js");
const { assert, watch, pause, until, receiver } = require(process.env.WALK);

// Internal methods of the client.
const HIDDEN = ["mergeHeaders", "fetchRequest", "post", "get", "put", "patch", "delete"];
const usesend = new UseSend(process.env.KEY, process.env.URL);
const { all, worked } = watch(usesend, HIDDEN);

async function good(answer) {
  const { data, error } = await answer;
  assert.equal(error, null, JSON.stringify(error));
  return data;
}

/** Errors arrive as the whole envelope. */
async function bad(answer, code, message) {
  const { data, error } = await answer;
  assert.equal(data, null);
  assert.equal(error.error.code, code, JSON.stringify(error));
  if (message) assert.equal(error.error.message, message);
  return error.error.message;
}

const mail = (words = {}) => ({
  from: "Agent <agent@mailonce.test>", to: ["ada@example.com"], subject: "Order 1", text: "Thank you.", ...words,
});
const MISMATCH = "Idempotency-Key already used with a different payload";

async function sends() {
  const first = await good(usesend.emails.send(mail(), { idempotencyKey: "use-1" }));
  assert.equal((await good(usesend.emails.create(mail({ to: "ada@example.com" }), { idempotencyKey: "use-1" }))).emailId, first.emailId);
  await bad(usesend.emails.send(mail({ text: "Other." }), { idempotencyKey: "use-1" }), "NOT_UNIQUE", MISMATCH);
  const race = await Promise.all(
    Array.from({ length: 50 }, () => good(usesend.emails.send(mail({ subject: "Race" }), { idempotencyKey: "use-race" }))),
  );
  assert.equal(new Set(race.map((one) => one.emailId)).size, 1);
  const items = [mail({ subject: "One" }), mail({ subject: "Two", attachments: [{ filename: "a.txt", content: "YWJj" }] })];
  const batch = await good(usesend.emails.batch(items, { idempotencyKey: "use-batch" }));
  assert.equal(batch.length, 2);
  assert.deepEqual(await good(usesend.emails.batch(items, { idempotencyKey: "use-batch" })), batch);
  await bad(usesend.emails.batch([items[1]], { idempotencyKey: "use-batch" }), "NOT_UNIQUE", MISMATCH);
  await bad(usesend.emails.send(mail(), { idempotencyKey: "use-batch" }), "NOT_UNIQUE", MISMATCH);
  await bad(usesend.emails.batch([]), "BAD_REQUEST", "No emails provided for bulk send");
  const email = await until("sent", async () => {
    const email = await good(usesend.emails.get(first.emailId));
    return email.latestStatus === "SENT" && email;
  });
  assert.deepEqual([email.to, email.subject, email.text], [["ada@example.com"], "Order 1", "Thank you."]);
  assert.deepEqual(email.emailEvents.map((one) => one.status), ["QUEUED", "SENT"]);
  await good(usesend.emails.send(mail({ subject: "Re: Order 1", inReplyToId: first.emailId })));
  await bad(usesend.emails.send(mail({ inReplyToId: "x" })), "BAD_REQUEST", '"inReplyTo" is invalid');
  const doubtful = mail({ to: "unknown@sandbox.mailonce.test", subject: "Doubt" });
  const doubt = await good(usesend.emails.send(doubtful, { idempotencyKey: "use-doubt" }));
  await until("delayed", async () => (await good(usesend.emails.get(doubt.emailId))).latestStatus === "DELIVERY_DELAYED");
  // A replay of an email with an unknown outcome is not a success.
  assert.match(await bad(usesend.emails.send(doubtful, { idempotencyKey: "use-doubt" }), "NOT_UNIQUE"), /it is unknown whether it was delivered/);
}

async function schedules() {
  const at = (hours) => new Date(Date.now() + hours * 3_600_000).toISOString();
  const due = at(1);
  const { emailId } = await good(usesend.emails.send(mail({ subject: "Later", scheduledAt: due }), { idempotencyKey: "use-later" }));
  assert.equal((await good(usesend.emails.get(emailId))).latestStatus, "SCHEDULED");
  assert.deepEqual(await good(usesend.emails.update(emailId, { scheduledAt: at(2) })), { emailId });
  assert.deepEqual(await good(usesend.emails.cancel(emailId)), { emailId });
  assert.equal((await good(usesend.emails.get(emailId))).latestStatus, "CANCELLED");
  const again = await usesend.emails.send(mail({ subject: "Later", scheduledAt: due }), { idempotencyKey: "use-later" });
  assert.equal(again.error.error.code, "NOT_UNIQUE");
  assert.ok(again.error.error.message.includes(emailId));
  await bad(usesend.emails.update(emailId, { scheduledAt: at(2) }), "BAD_REQUEST", "Email already processed");
  // The SDK has no method for lists, but the route exists.
  const listed = await good(usesend.get("/emails?page=1&limit=2"));
  assert.equal(listed.data.length, 2);
  const second = await good(usesend.get("/emails?page=2&limit=1"));
  assert.equal(second.data[0].id, listed.data[1].id);
  const whole = await good(usesend.get("/emails?limit=50"));
  assert.deepEqual([listed.count, second.count, whole.count], [whole.data.length, whole.data.length, whole.data.length]);
}

async function domains() {
  const made = await good(usesend.domains.create({ name: "use.example.com", region: "us-east-1" }));
  assert.ok(Number.isSafeInteger(made.id) && made.dnsRecords.length > 0);
  assert.equal((await good(usesend.domains.list())).find((one) => one.name === "use.example.com").id, made.id);
  assert.equal((await good(usesend.domains.get(made.id))).status, "NOT_STARTED");
  assert.deepEqual(await good(usesend.domains.verify(made.id)), { message: "Domain verification started" });
  assert.equal((await good(usesend.domains.delete(made.id))).success, true);
  await bad(usesend.domains.get(made.id), "NOT_FOUND");
}

async function webhooks() {
  const webhookServer = await receiver();
  const native = process.env.URL.replace("/compat/usesend", "");
  const made = await fetch(`${native}/v1/endpoints`, {
    method: "POST",
    headers: { authorization: `Bearer ${process.env.KEY}`, "content-type": "application/json" },
    body: JSON.stringify({ url: webhookServer.url, events: ["email.*"], dialect: "usesend" }),
  });
  const { secret } = await made.json();
  const { emailId } = await good(usesend.emails.send(mail({ subject: "Told" }), { idempotencyKey: "use-told" }));
  const delivery = await until("webhook", () => webhookServer.received.find(({ headers, body }) => headers["x-usesend-event"] === "email.sent" && body.includes(emailId)));
  const event = usesend.webhooks(secret).constructEvent(delivery.body, { headers: delivery.headers });
  assert.deepEqual([event.type, event.version, event.attempt, event.data.id, event.data.status], ["email.sent", "2026-01-18", 1, emailId, "SENT"]);
  assert.ok(!usesend.webhooks(secret).verify(delivery.body.replace("SENT", "LOST"), { headers: delivery.headers }));
  assert.ok(!usesend.webhooks("whsec_" + "0".repeat(64)).verify(delivery.body, { headers: delivery.headers }));
  // One event per email, whatever the number of its recipients, as useSend does it.
  const to = ["one@example.com", "two@example.com"];
  const many = await good(usesend.emails.send(mail({ to, cc: "three@example.com", subject: "Many" }), { idempotencyKey: "use-many" }));
  await until("many", async () => (await good(usesend.emails.get(many.emailId))).latestStatus === "SENT");
  const sent = () => webhookServer.received.map(({ body }) => JSON.parse(body)).filter((one) => one.type === "email.sent" && one.data.id === many.emailId);
  await until("the event", () => sent().length);
  await pause(1_000);
  assert.deepEqual(sent().map((one) => one.data.to), [to]);
  webhookServer.close();
}

async function analytics() {
  const week = await good(usesend.analytics.emailTimeSeries({ days: "7" }));
  assert.equal(week.result.length, 7);
  assert.ok(week.totalCounts.sent > 3 && week.result.at(-1).sent === week.totalCounts.sent, JSON.stringify(week));
  assert.equal((await good(usesend.analytics.emailTimeSeries())).result.length, 30);
  await bad(usesend.analytics.emailTimeSeries({ days: "8" }), "BAD_REQUEST", "days must be 7 or 30");
  await bad(usesend.analytics.emailTimeSeries({ domainId: "7" }), "NOT_FOUND", "Domain not found");
  const reputation = await good(usesend.analytics.reputationMetrics());
  assert.deepEqual([reputation.hardBounced, reputation.bounceRate, reputation.complaintRate], [0, 0, 0]);
}

async function errors() {
  await bad(new UseSend("us_wrong_wrong", process.env.URL).emails.get("x"), "FORBIDDEN", "Invalid API token");
  await bad(usesend.emails.send({}), "BAD_REQUEST");
  await bad(usesend.emails.send(mail({ from: "nobody" })), "BAD_REQUEST", "From email is invalid");
  await bad(usesend.emails.send(mail({ text: undefined })), "BAD_REQUEST", "Either text or html is required");
  await bad(usesend.emails.send(mail({ to: 7 })), "BAD_REQUEST");
  await bad(usesend.emails.send(mail(), { idempotencyKey: "x".repeat(257) }), "BAD_REQUEST", "Invalid Idempotency-Key length");
  await bad(usesend.emails.get("00000000-0000-7000-8000-000000000000"), "NOT_FOUND", "Email not found");
}

/** Templates are made with the native API: useSend has none for them. */
async function templates() {
  const call = async (method, path, body) => {
    const headers = { authorization: `Bearer ${process.env.KEY}`, "content-type": "application/json" };
    const answer = await fetch(`${new URL(process.env.URL).origin}/v1/templates${path}`, { method, headers, body: JSON.stringify(body) });
    assert.ok(answer.ok, await answer.clone().text());
    return answer.json();
  };
  const made = await call("POST", "", { name: "use-welcome", subject: "Hi {{ name }}", html: "<p>Welcome, {{ name }}.</p>" });
  const templated = (words = {}) => ({ from: "agent@mailonce.test", to: "ada@example.com", templateId: made.id, variables: { name: "Ada" }, ...words });
  const first = await good(usesend.emails.send(templated(), { idempotencyKey: "use-template" }));
  const email = await good(usesend.emails.get(first.emailId));
  assert.deepEqual([email.subject, email.html], ["Hi Ada", "<p>Welcome, Ada.</p>"]);
  await call("PATCH", "/use-welcome", { subject: "Bye {{ name }}" });
  assert.equal((await good(usesend.emails.send(templated(), { idempotencyKey: "use-template" }))).emailId, first.emailId);
  await bad(usesend.emails.send(templated({ variables: { name: "Bob" } }), { idempotencyKey: "use-template" }), "NOT_UNIQUE", MISMATCH);
  const named = await good(usesend.emails.send(templated({ templateId: "use-welcome", subject: "Ignored", variables: { name: "Eve" } })));
  assert.equal((await good(usesend.emails.get(named.emailId))).subject, "Bye Eve");
  await bad(usesend.emails.send(templated({ templateId: "none" })), "BAD_REQUEST", "templateId names no template: none");
  await bad(usesend.emails.send(templated({ text: "Hi" })), "BAD_REQUEST", "text cannot be combined with templateId: the template writes the email");
  assert.match(await bad(usesend.emails.send(templated({ variables: {} })), "BAD_REQUEST"), /`name` has no value/);
  assert.equal((await good(usesend.emails.batch([templated({ variables: { name: "Cid" } })]))).length, 1);
}

async function refusals() {
  const refused = {};
  for (const [dotted, { thing, name }] of all) {
    if (worked.has(dotted)) continue;
    const { error } = await thing[name]("x", "y", { z: 1 });
    refused[dotted] = error ? `501 ${error.error.code}` : "no error";
  }
  return refused;
}

(async () => {
  await sends();
  await schedules();
  await domains();
  await webhooks();
  await analytics();
  await errors();
  await templates();
  const refused = await refusals();
  console.log(JSON.stringify({ methods: [...all.keys()].sort(), worked: [...worked].sort(), refused }));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
