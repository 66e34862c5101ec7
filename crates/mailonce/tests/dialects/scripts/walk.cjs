// Inspects an SDK: which methods it has, which of them worked, and which were refused with which error.

const assert = require("node:assert/strict");

/** Every method of a client, by its dotted name, with the object it belongs to. */
function methods(client, hidden) {
  const found = new Map();
  const seen = new Set([client]);
  const walk = (thing, path) => {
    const prototype = Object.getPrototypeOf(thing);
    for (const name of Object.getOwnPropertyNames(prototype)) {
      const dotted = [...path, name].join(".");
      const value = Object.getOwnPropertyDescriptor(prototype, name).value;
      if (name === "constructor" || typeof value !== "function" || hidden.includes(dotted)) continue;
      found.set(dotted, { thing, name });
    }
    for (const [name, value] of Object.entries(thing)) {
      const isService = value && typeof value === "object" && value.constructor && value.constructor !== Object;
      if (!isService || value instanceof Headers || Array.isArray(value) || seen.has(value)) continue;
      seen.add(value);
      walk(value, [...path, name]);
    }
  };
  walk(client, []);
  return found;
}

/** Records every method that returns data without an error, from now on. */
function watch(client, hidden) {
  const all = methods(client, hidden);
  const worked = new Set();
  for (const [dotted, { thing, name }] of all) {
    const original = thing[name];
    thing[name] = function (...args) {
      const answer = original.apply(thing, args);
      if (typeof answer?.then !== "function") {
        worked.add(dotted);
        return answer;
      }
      return Promise.resolve(answer).then((value) => {
        if (value && value.error === null && value.data !== undefined) worked.add(dotted);
        return value;
      });
    };
  }
  return { all, worked };
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Calls `ask` until it returns a value. */
async function until(what, ask) {
  for (let n = 0; n < 100; n++) {
    const found = await ask();
    if (found) return found;
    await pause(100);
  }
  throw new Error(`never: ${what}`);
}

/** A local webhook receiver. */
async function receiver() {
  const received = [];
  const server = require("node:http").createServer((request, response) => {
    let body = "";
    request.on("data", (some) => (body += some));
    request.on("end", () => {
      received.push({ headers: request.headers, body });
      response.end("{}");
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { received, url: `http://127.0.0.1:${server.address().port}/in`, close: () => server.close() };
}

module.exports = { assert, methods, watch, pause, until, receiver };
