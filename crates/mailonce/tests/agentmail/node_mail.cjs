// Received mail: listed, read, labelled, searched, answered once and forwarded. Threads with both directions.
"use strict";
const { AgentMail, FILE, WITH_FILE, arrives, assert, client, fails, is, letter, mails, until } = require("./walk.cjs");

module.exports = async function mail(inbox) {
  const { messages } = client.inboxes;
  // A Message-ID may contain characters that a path may not.
  const id = "<a/b+c=%41?d#e@x.test>";
  await arrives("ann@x.test", inbox.inboxId, letter("Ann <ann@x.test>", `${inbox.inboxId}, bob@x.test`, id, "A question", FILE, WITH_FILE));
  const found = await until("the mail", async () => (await messages.list(inbox.inboxId, { labels: ["received"] })).messages[0]);
  is([found.from, found.subject, found.labels], ["Ann <ann@x.test>", "A question", ["received", "unread"]]);
  // Such a message is listed under a path-safe id, and both ids find it.
  const own = found.messageId;
  assert.match(own, /^[0-9a-f-]{36}$/);
  const seen = await messages.get(inbox.inboxId, id);
  is(await messages.get(inbox.inboxId, own), seen);
  is([seen.text.trim(), seen.extractedText.trim(), seen.attachments[0].filename], ["See the file.", "See the file.", "a.csv"]);
  const file = await messages.getAttachment(inbox.inboxId, id, seen.attachments[0].attachmentId);
  is((await (await fetch(file.downloadUrl)).text()).trim(), "1,2,3");
  const raw = await messages.getRaw(inbox.inboxId, id);
  assert.ok((await (await fetch(raw.downloadUrl)).text()).includes(id));
  await labels(inbox, own);
  await lists(inbox, own);
  await answers(inbox, own, id);
  await threads(inbox, own, seen.threadId);
  await fails(messages.get(inbox.inboxId, "<nothing@x.test>"), AgentMail.NotFoundError, 404);
};

async function labels(inbox, id) {
  const { messages } = client.inboxes;
  is((await messages.update(inbox.inboxId, id, { addLabels: "todo", removeLabels: ["unread"] })).labels, ["received", "todo"]);
  is((await messages.get(inbox.inboxId, id)).labels, ["received", "todo"]);
  await fails(messages.update(inbox.inboxId, id, { removeLabels: ["received"] }), AgentMail.ValidationError, 400);
  const batch = await messages.batchUpdate(inbox.inboxId, { messageIds: [id, "<no@x.test>"], addLabels: ["seen"] });
  is([batch.limit, batch.count, batch.updates[0].labels], [2, 1, ["received", "todo", "seen"]]);
  const got = await messages.batchGet(inbox.inboxId, { messageIds: [id, "<no@x.test>"] });
  is([got.limit, got.count, got.messages[0].messageId, got.messages[0].text], [2, 1, id, undefined]);
}

async function lists(inbox, id) {
  const { messages } = client.inboxes;
  const ids = async (query) => (await messages.list(inbox.inboxId, query)).messages.map((one) => one.messageId);
  is(await ids({ labels: ["todo", "seen"] }), [id]);
  is(await ids({ labels: ["todo", "nothing"] }), []);
  is(await ids({ from: ["ANN@"], subject: ["question"] }), [id]);
  is((await ids({ to: ["cy@example.com"] })).length, 1);
  is(await ids({ before: new Date("2020-01-01T00:00:00Z") }), []);
  const all = await ids({ limit: 100 });
  is(await ids({ limit: 100, ascending: true }), [...all].reverse());
  const pages = [];
  for (let pageToken; ; ) {
    const page = await messages.list(inbox.inboxId, { limit: 2, pageToken });
    pages.push(...page.messages.map((one) => one.messageId));
    if (!(pageToken = page.nextPageToken)) break;
  }
  is(pages, all);
  const hits = await messages.search(inbox.inboxId, { q: "See the file" });
  is([hits.messages[0].messageId, hits.messages[0].highlights.text[0].includes("**See** the file")], [id, true]);
  is((await messages.search(inbox.inboxId, { q: "no such words" })).count, 0);
  await fails(messages.search(inbox.inboxId, { q: " " }), AgentMail.ValidationError, 400);
}

async function answers(inbox, id, messageId) {
  const { messages } = client.inboxes;
  const first = await messages.reply(inbox.inboxId, id, { text: "The answer is 42.", labels: ["answered"] });
  // Without a key, the message itself identifies the reply.
  is(await messages.reply(inbox.inboxId, id, { text: "The answer is 42." }), first);
  await fails(messages.reply(inbox.inboxId, id, { text: "The answer is 43." }, { maxRetries: 0 }), AgentMail.ConflictError, 409);
  is((await mails("ann@x.test")).length, 1);
  const seen = await messages.get(inbox.inboxId, first.messageId);
  is([seen.subject, seen.to, seen.inReplyTo, seen.labels.includes("answered")], ["Re: A question", ["Ann <ann@x.test>"], messageId, true]);
  // A reply to our reply is a new message to answer.
  const more = await messages.reply(inbox.inboxId, first.messageId, { text: "And one more thing." });
  assert.notStrictEqual(more.messageId, first.messageId);
  is([more.threadId, (await mails("ann@x.test")).length], [first.threadId, 2]);

  const second = "<second@x.test>";
  await arrives("eve@x.test", inbox.inboxId, letter("eve@x.test", `${inbox.inboxId}, fay@x.test`, second, "To all", ["Cc: gus@x.test"]));
  await until("the second mail", async () => (await messages.list(inbox.inboxId, { subject: ["To all"] })).count);
  const all = await messages.replyAll(inbox.inboxId, second, { html: "<p>To all of you</p>", text: "To all of you" }, { idempotencyKey: "node-all" });
  is(await messages.replyAll(inbox.inboxId, second, { html: "<p>To all of you</p>", text: "To all of you" }, { idempotencyKey: "node-all" }), all);
  const sentReply = await messages.get(inbox.inboxId, all.messageId);
  is([sentReply.to, sentReply.cc], [["eve@x.test", "fay@x.test"], ["gus@x.test"]]);

  const passed = await messages.forward(inbox.inboxId, id, { to: "hal@example.com", text: "See below." }, { idempotencyKey: "node-forward" });
  is(await messages.forward(inbox.inboxId, id, { to: "hal@example.com", text: "See below." }, { idempotencyKey: "node-forward" }), passed);
  const whole = await messages.get(inbox.inboxId, passed.messageId);
  is([whole.subject, whole.attachments[0].filename, whole.text.includes("See the file.")], ["Fwd: A question", "a.csv", true]);
  is((await mails("hal@example.com")).length, 1);
}

async function threads(inbox, id, threadId) {
  const { threads, messages } = client.inboxes;
  const thread = await threads.get(inbox.inboxId, threadId);
  assert.ok(thread.messageCount >= 3 && thread.messages[0].messageId === id && thread.messages[0].text, JSON.stringify(thread));
  is([thread.subject, thread.labels.includes("todo")], ["A question", true]);
  const file = await threads.getAttachment(inbox.inboxId, threadId, thread.attachments[0].attachmentId);
  is((await (await fetch(file.downloadUrl)).text()).trim(), "1,2,3");
  const listed = await threads.list(inbox.inboxId, { limit: 100 });
  is(listed.threads.filter((one) => one.threadId === threadId).length, 1);
  assert.ok((await client.threads.list({ limit: 100 })).threads.some((one) => one.threadId === threadId));
  is((await threads.list(inbox.inboxId, { limit: 100, ascending: true })).threads.map((one) => one.threadId), listed.threads.map((one) => one.threadId).reverse());
  is((await client.threads.get(threadId)).threadId, threadId);
  is((await client.threads.getAttachment(threadId, thread.attachments[0].attachmentId)).filename, "a.csv");
  is((await threads.search(inbox.inboxId, { q: "a question" })).threads.map((one) => one.threadId), [threadId]);
  is((await client.threads.search({ q: "a question" })).threads.map((one) => one.threadId), [threadId]);
  const changed = await threads.update(inbox.inboxId, threadId, { addLabels: ["case"], removeLabels: ["todo"] });
  assert.ok(changed.labels.includes("case") && !changed.labels.includes("todo"));
  assert.ok((await client.threads.update(threadId, { addLabels: ["kept"] })).labels.includes("kept"));

  // A thread that we started has its id before anyone replies.
  const begun = await messages.send(inbox.inboxId, { to: "ida@x.test", subject: "We begin", text: "Hello?" });
  is((await threads.get(inbox.inboxId, begun.threadId)).messages.map((one) => one.messageId), [begun.messageId]);
  is((await client.threads.list({ limit: 1 })).threads.map((one) => one.threadId), [begun.threadId]);
  const answer = "<answer@x.test>";
  await arrives("ida@x.test", inbox.inboxId, letter("ida@x.test", inbox.inboxId, answer, "Re: We begin", [`In-Reply-To: ${begun.messageId}`, `References: ${begun.messageId}`]));
  const both = await until("the answer", async () => {
    const thread = await threads.get(inbox.inboxId, begun.threadId);
    return thread.messageCount === 2 && thread;
  });
  is(both.messages.map((one) => one.messageId), [begun.messageId, answer]);
  await threads.delete(inbox.inboxId, begun.threadId);
  await fails(threads.get(inbox.inboxId, begun.threadId), AgentMail.NotFoundError, 404);
  await fails(messages.get(inbox.inboxId, answer), AgentMail.NotFoundError, 404);
  const gone = await messages.send(inbox.inboxId, { to: "jon@x.test", subject: "Gone", text: "Gone" });
  await messages.delete(inbox.inboxId, gone.messageId);
  await fails(messages.get(inbox.inboxId, gone.messageId), AgentMail.NotFoundError, 404);
  const last = await messages.send(inbox.inboxId, { to: "jon@x.test", subject: "Gone too", text: "Gone" });
  await client.threads.delete(last.threadId);
  await fails(client.threads.get(last.threadId), AgentMail.NotFoundError, 404);
}
