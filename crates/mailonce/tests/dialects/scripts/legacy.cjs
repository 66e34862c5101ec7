// A script as many people have it: the official SDK, another base URL, and no idempotency key.

const { Resend } = require("resend");

const { URL, KEY, TO, TEXT, IS_KILLED } = process.env;

(async () => {
  const resend = new Resend(KEY, { baseUrl: URL });
  const { data, error } = await resend.emails.send({
    from: "agent@mailonce.test",
    to: TO,
    subject: "Your invoice",
    text: TEXT,
  });
  if (error) throw new Error(JSON.stringify(error));
  // A job runner's kill reaches the script after its email was accepted, and before it could record so.
  if (IS_KILLED) process.kill(process.pid, "SIGKILL");
  console.log(JSON.stringify(data));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
