// Delivers mail to the server's SMTP listener (MAILONCE_SMTP), as a stranger's server does.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { SLOW_MS } from "./browser.mjs";

/** Waits for complete replies, which can come in several parts or several at once. */
const readReplies = (socket) => {
  let text = "";
  let over = null;
  let wake = () => undefined;
  const end = (why) => {
    over ??= new Error(`SMTP: ${why}`);
    wake();
  };
  socket.setTimeout(SLOW_MS, () => socket.destroy(new Error(`no reply within ${SLOW_MS} ms`)));
  socket.on("error", (error) => end(error.message));
  socket.on("close", () => end("the server closed the connection"));
  socket.on("data", (part) => {
    text += part;
    wake();
  });
  return async () => {
    for (;;) {
      const found = /^(?:\d{3}-.*\r\n)*(\d{3}) .*\r\n/.exec(text);
      if (found) {
        text = text.slice(found[0].length);
        return found[0];
      }
      if (over) throw over;
      await new Promise((resolve) => (wake = resolve));
    }
  };
};

/** Sends `raw`, a complete mail with LF or CRLF. */
export const deliver = async ({ from, to = "agent@mailonce.test", raw }) => {
  const [host, port] = process.env.MAILONCE_SMTP.split(":");
  const socket = connect(Number(port), host).setEncoding("utf8");
  const next = readReplies(socket);
  const say = async (line, expected) => {
    socket.write(`${line}\r\n`);
    const reply = await next();
    assert.ok(reply.startsWith(expected), `SMTP: ${reply}`);
  };
  assert.ok((await next()).startsWith("220"));
  await say("EHLO client.example", "250");
  await say(`MAIL FROM:<${from}>`, "250");
  await say(`RCPT TO:<${to}>`, "250");
  await say("DATA", "354");
  await say(`${raw.replace(/\r?\n/g, "\r\n").replace(/^\./gm, "..")}\r\n.`, "250");
  socket.end("QUIT\r\n");
};

/** A mail with header fields and parts. Each part is `{ type, content, headers }`; bodies are sent as base64. */
export const compose = (headers, parts) => {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const encode = (content) => Buffer.from(content).toString("base64").replace(/.{76}/g, "$&\n");
  const part = ({ type, content, headers: own = {} }) =>
    [`Content-Type: ${type}`, "Content-Transfer-Encoding: base64", ...Object.entries(own).map(([name, value]) => `${name}: ${value}`), "", encode(content)].join("\n");
  return [...lines, "MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="cut-here"', "", ...parts.map((one) => `--cut-here\n${part(one)}`), "--cut-here--", ""].join("\n");
};
