// Where email leads to in tests: an SMTP server, and an HTTPS server that takes cards.
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer as createHttpsServer } from "node:https";
import { createServer } from "node:net";
import { join } from "node:path";

const listen = async (server, port = 0) => {
  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  return server.address().port;
};

/** The text of a mail with one part, without its transfer encoding. */
const textOf = (raw) => {
  const [head, ...rest] = raw.split("\r\n\r\n");
  const body = rest.join("\r\n\r\n");
  if (/^content-transfer-encoding: *base64/im.test(head)) return Buffer.from(body, "base64").toString();
  if (!/^content-transfer-encoding: *quoted-printable/im.test(head)) return body;
  const bytes = body.replace(/=\r\n/g, "").replace(/=([0-9A-F]{2})/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, "latin1").toString();
};

const header = (raw, name) => {
  const unfolded = raw.split("\r\n\r\n")[0].replace(/\r\n[ \t]+/g, " ");
  return new RegExp(`^${name}: *(.*)$`, "im").exec(unfolded)?.[1];
};

/** Speaks the server's side of one SMTP connection, and gives every mail that was accepted to `take`. `answer` is for a recipient. */
const converse = (socket, take, answer) => {
  let input = "";
  let mail = null;
  let inData = false;
  const say = (line) => socket.write(`${line}\r\n`);
  const endData = () => {
    const end = input.indexOf("\r\n.\r\n");
    if (end < 0) return false;
    const raw = input.slice(0, end).replace(/^\.\./gm, ".");
    input = input.slice(end + 5);
    inData = false;
    take({ ...mail, raw, subject: header(raw, "subject"), text: textOf(raw) });
    say("250 2.0.0 accepted");
    return true;
  };
  const command = () => {
    const end = input.indexOf("\r\n");
    if (end < 0) return false;
    const line = input.slice(0, end);
    input = input.slice(end + 2);
    const address = /<(.*?)>/.exec(line)?.[1];
    if (/^MAIL/i.test(line)) mail = { from: address, to: [] };
    const isRecipient = /^RCPT/i.test(line);
    if (isRecipient) mail.to.push(address);
    inData = /^DATA/i.test(line);
    say(inData ? "354 go on" : /^QUIT/i.test(line) ? "221 bye" : isRecipient ? answer(address) : "250 ok");
    return true;
  };
  // A client that goes away in the middle of a mail has handed over nothing.
  socket.on("error", () => socket.destroy());
  socket.setEncoding("latin1").on("data", (part) => {
    input += part;
    while (inData ? endData() : command());
  });
  say("220 sink.example");
};

/** The configuration of a relay on this port of the machine. */
export const relayConfig = (port, name = "sink") => `[[transports]]\nname = "${name}"\nkind = "smtp"\nhost = "127.0.0.1"\nport = ${port}\ntls = "none"\n`;

/** Takes mail, unless `answer` refuses a recipient. `mails` has `{ from, to, raw, subject, text }` of each. */
export const startMailSink = async (answer = () => "250 ok", at = 0) => {
  const mails = [];
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket.once("close", () => sockets.delete(socket)));
    converse(socket, (mail) => mails.push(mail), answer);
  });
  const config = relayConfig(await listen(server, at));
  const close = () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return { config, mails, close };
};

/** A certificate for this machine, made by openssl in `folder`. */
const certificate = async (folder) => {
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-keyout", key, "-out", cert, ...names], { stdio: "ignore" });
  return { cert: await readFile(cert), key: await readFile(key), path: cert };
};

/** Takes posts of JSON by HTTPS. `posts` has `{ path, headers, json }` of each. */
export const startCardReceiver = async (folder) => {
  const posts = [];
  const { cert, key, path } = await certificate(folder);
  const server = createHttpsServer({ cert, key }, (request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      posts.push({ path: request.url, headers: request.headers, json: JSON.parse(body) });
      response.writeHead(200).end("ok");
    });
  });
  const url = `https://127.0.0.1:${await listen(server)}`;
  return { url, config: `[webhooks]\nca_file = ${JSON.stringify(path)}\n`, posts, close: () => server.closeAllConnections() ?? server.close() };
};
