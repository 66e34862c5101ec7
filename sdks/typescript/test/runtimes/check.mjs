// What every runtime must show, with nothing but what all of them have. `sdk` is the package as the runtime loads it.

function equal(found, wanted, what) {
  const [one, other] = [found, wanted].map((value) => JSON.stringify(value));
  if (one !== other) throw new Error(`${what}: ${one}, wanted ${other}`);
}

/** What `call` throws. */
async function thrown(call, what) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error(`${what}: nothing was thrown`);
}

export async function check(sdk, { mo, keys, webhooks }) {
  let counted = 0;
  for (const { name, intent, to, key, invalid } of keys) {
    if (key !== undefined) equal(sdk.deriveKey(intent, to), key, `key: ${name}`);
    else equal((await thrown(() => sdk.deriveKey(intent, to), `key: ${name}`)).field, invalid, `key: ${name}`);
    counted++;
  }
  for (const { name, body, headers, secret, now, event, error } of webhooks) {
    const verify = () => sdk.verifyWebhook(body, headers, secret, { now: new Date(now * 1000) });
    if (event !== undefined) equal(verify().type, event.type, `webhook: ${name}`);
    else equal((await thrown(verify, `webhook: ${name}`)).code, error, `webhook: ${name}`);
    counted++;
  }
  const mail = { from: "agent@mailonce.test", to: "ada@example.com", subject: "Order", text: "Thank you." };
  const intent = { type: "runtime.check", entity: `№ ${Date.now()} ${Math.random()}` };
  const first = await mo.emails.send({ ...mail, intent });
  const again = await mo.emails.send({ ...mail, intent });
  equal([first.dedupe.outcome, again.dedupe.outcome], ["first", "replayed"], "outcomes");
  equal([again.id, again.dedupe.payload_differs], [first.id, false], "the replay");
  equal(first.dedupe.key, sdk.deriveKey(intent, mail.to), "the key of the server");

  for await (const event of mo.events.stream({ after: "0", about: first.id })) {
    equal([event.type, event.about.id], ["email.accepted", first.id], "the first event");
    break;
  }
  const ended = await thrown(() => mo.emails.get(first.id, { signal: AbortSignal.abort() }), "a call that was ended");
  equal([ended instanceof sdk.MailonceError, ended.code, ended.retry], [true, "aborted", "same"], "its error");
  const nobody = await thrown(
    () => mo.emails.get("00000000-0000-7000-8000-000000000000"),
    "an email that is not there",
  );
  equal([nobody instanceof sdk.MailonceError, nobody.code], [true, "not_found"], "its error");
  return `${counted} vectors, ${first.dedupe.outcome}, ${again.dedupe.outcome}, a stream, two errors`;
}
