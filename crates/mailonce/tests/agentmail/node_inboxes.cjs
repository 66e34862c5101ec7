// Inboxes: created once per `client_id`, read, searched, changed and deleted.
"use strict";
const { AgentMail, AgentMailClient, AgentMailError, assert, client, environment, fails, is } = require("./walk.cjs");

module.exports = async function inboxes() {
  const made = await client.inboxes.create({ username: "node", clientId: "node-1", displayName: "Node Agent", metadata: { tier: "gold", seats: 5, beta: true } });
  is([made.inboxId, made.email, made.displayName, made.clientId], ["node@mailonce.test", "node@mailonce.test", "Node Agent", "node-1"]);
  is(made.metadata, { tier: "gold", seats: 5, beta: true });
  assert.ok(made.createdAt instanceof Date && made.podId);
  const again = await client.inboxes.create({ username: "node", clientId: "node-1" });
  is([again.inboxId, again.displayName], [made.inboxId, "Node Agent"]);
  is((await client.inboxes.get(made.inboxId)).email, made.email);
  const changed = await client.inboxes.update(made.inboxId, { displayName: "Node", metadata: { seats: 6 } });
  is([changed.displayName, changed.metadata], ["Node", { tier: "gold", seats: 6, beta: true }]);

  const other = await client.inboxes.create({ username: "short-lived" });
  const listed = await client.inboxes.list({ limit: 1 });
  is([listed.count, listed.inboxes[0].inboxId], [1, other.inboxId]);
  const next = await client.inboxes.list({ limit: 100, pageToken: listed.nextPageToken });
  assert.ok(next.inboxes.some((one) => one.inboxId === made.inboxId));
  is((await client.inboxes.search({ q: "nod" })).inboxes.map((one) => one.inboxId), [made.inboxId]);

  await client.inboxes.delete(other.inboxId);
  await fails(client.inboxes.get(other.inboxId), AgentMail.NotFoundError, 404);

  is((await fails(client.inboxes.create({ username: "node" }), AgentMail.UnprocessableError, 422)).code, "resource_taken");
  const bad = await fails(client.inboxes.create({ username: "no way" }), AgentMail.ValidationError, 400);
  is(bad.errors[0].path, ["username"]);
  await fails(client.inboxes.get("nobody@mailonce.test"), AgentMail.NotFoundError, 404);
  const stranger = new AgentMailClient({ apiKey: "am_0000000000000000", environment, maxRetries: 0 });
  const body = await fails(stranger.inboxes.list(), AgentMailError, 401);
  is(body.code, "unknown_api_key");

  const pod = (await client.pods.list()).pods[0];
  is([pod.podId, (await client.pods.get(pod.podId)).podId], [made.podId, made.podId]);
  assert.ok((await client.pods.inboxes.list(pod.podId)).inboxes.some((one) => one.inboxId === made.inboxId));
  is((await client.auth.me()).organizationId, pod.podId);
  return made;
};
