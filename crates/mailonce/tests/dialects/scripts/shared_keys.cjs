// One key through two SDKs and the native API is one email.

const { Resend } = require("resend");
const { UseSend } = require("usesend-js");
const assert = require("node:assert/strict");

const { URL, KEY } = process.env;
const mail = { from: "agent@mailonce.test", to: ["ada@example.com"], subject: "Together", text: "Once." };
const senders = {
  resend: async (key) => (await new Resend(KEY, { baseUrl: `${URL}/compat/resend` }).emails.send(mail, { idempotencyKey: key })).data.id,
  usesend: async (key) => (await new UseSend(KEY, `${URL}/compat/usesend`).emails.send(mail, { idempotencyKey: key })).data.emailId,
  native: async (key) => {
    const headers = { authorization: `Bearer ${KEY}`, "content-type": "application/json", "idempotency-key": key };
    return (await (await fetch(`${URL}/v1/emails`, { method: "POST", headers, body: JSON.stringify(mail) })).json()).id;
  },
};

(async () => {
  for (const first of Object.keys(senders)) {
    const key = `together-${first}`;
    const ids = [await senders[first](key)];
    for (const sendWith of Object.values(senders)) ids.push(await sendWith(key));
    assert.equal(new Set(ids).size, 1, JSON.stringify(ids));
  }
  const racing = Object.values(senders).flatMap((sendWith) => Array.from({ length: 17 }, () => sendWith("together-race")));
  const ids = new Set(await Promise.all(racing));
  assert.equal(ids.size, 1);
  console.log(JSON.stringify({ emails: 4 }));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
