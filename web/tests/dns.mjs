// A DNS server that knows the TXT records it is given.
import { createSocket } from "node:dgram";

const TXT = 16;
const [NOERROR, SERVFAIL, NXDOMAIN] = [0, 2, 3];

/** The name and the type of the only question of a query, and where the question ends. */
const questionOf = (query) => {
  const labels = [];
  let at = 12;
  for (; query[at] !== 0; at += 1 + query[at]) labels.push(query.toString("latin1", at + 1, at + 1 + query[at]));
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
};

/** A record of the question's name. Its text is cut into strings of at most 255 bytes. */
const txtRecord = (text) => {
  const parts = text.match(/[^]{1,255}/g).map((part) => Buffer.concat([Buffer.from([part.length]), Buffer.from(part, "latin1")]));
  const data = Buffer.concat(parts);
  const head = Buffer.from([0xc0, 12, 0, TXT, 0, 1, 0, 0, 0, 60, 0, 0]);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
};

const answer = (query, records) => {
  const { name, type, end } = questionOf(query);
  const known = records.get(name);
  const code = known === "fail" ? SERVFAIL : known ? NOERROR : NXDOMAIN;
  const texts = code === NOERROR && type === TXT ? known : [];
  const head = Buffer.from([query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, texts.length, 0, 0, 0, 0]);
  return Buffer.concat([head, query.subarray(12, end), ...texts.map(txtRecord)]);
};

/**
 * Answers at 127.0.0.1:`port` with `records`: the texts of a name in lower case, or "fail" for an answer with SERVFAIL. A name
 * without an entry does not exist.
 */
export const startDns = async (records, port) => {
  const socket = createSocket("udp4");
  socket.on("message", (query, { port: to, address }) => socket.send(answer(query, records), to, address));
  await new Promise((done, failed) => socket.once("error", failed).bind(port, "127.0.0.1", done));
  return { close: () => socket.close() };
};
