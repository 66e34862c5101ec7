// The adapters, driven by scripted models that repeat, re-word, rename and run tools twice: one mail, one reply. With the
// real server the sink behind it counts. Needs MAILONCE_FAULT_PROXY, MAILONCE_URL and a key.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Agent, Runner, setTracingDisabled, tool as agentTool, Usage } from "@openai/agents";
import { generateText, stepCountIs, tool as aiTool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { Mailonce, onceTool } from "mailonce";
import * as vercel from "mailonce/ai";
import * as openai from "mailonce/openai-agents";
import { Double, expectSentOnce } from "mailonce/testing";
import { z } from "zod";

setTracingDisabled(true);

const FROM = "agent@mailonce.test";
const { MAILONCE_CONTRACT, MAILONCE_URL: SERVER, MAILONCE_FAULT_PROXY: CONTROL } = process.env;
const LISTED = JSON.parse(readFileSync(`${MAILONCE_CONTRACT}/tools.json`, "utf8"));
const mail = {
  to: "ada@example.com",
  subject: "Order 4821",
  text: "Thank you.",
  type: "order.confirmation",
  entity: "order_4821",
};
const reworded = { ...mail, subject: "Your order", text: "Thanks so much for your order!" };

/** The turns of a model: in each, calls of tools. Then it says "done". */
const turnsFor = (message) => [
  [["send_email", mail]],
  [["send_email", mail]], // it repeats itself
  [
    ["send_email", reworded],
    ["send_email", reworded],
  ], // it re-words, twice in one turn
  [
    ["reply_email", { message, text: "At nine." }],
    ["reply_email", { message, text: "We open at nine." }],
  ],
  [["reply_email", { message, text: "At nine." }]],
];

const FRAMEWORKS = {
  "Vercel AI SDK": async (mo, turns, calls, own) => {
    let call = 0;
    const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
    const doGenerate = [
      ...turns.map((turn) => ({
        content: turn.map(([toolName, input]) => ({
          type: "tool-call",
          toolCallId: `call_${++call}`,
          toolName,
          input: JSON.stringify(input),
        })),
        finishReason: { unified: "tool-calls" },
        usage,
        warnings: [],
      })),
      { content: [{ type: "text", text: "done" }], finishReason: { unified: "stop" }, usage, warnings: [] },
    ];
    const result = await generateText({
      model: new MockLanguageModelV3({ doGenerate }),
      tools: own ? { refund: aiTool(own) } : vercel.emailTools(mo, { from: FROM, calls }),
      stopWhen: stepCountIs(20),
      prompt: "Confirm the order.",
    });
    assert.equal(result.text, "done");
    return result.steps.flatMap((step) => step.toolResults.map((one) => one.output));
  },
  "OpenAI Agents": async (mo, turns, calls, own) => {
    let turn = 0;
    let call = 0;
    const model = {
      async getResponse() {
        const now = turns[turn++];
        const output = now
          ? now.map(([name, input]) => ({
              type: "function_call",
              callId: `call_${++call}`,
              name,
              arguments: JSON.stringify(input),
              status: "completed",
            }))
          : [
              {
                type: "message",
                role: "assistant",
                status: "completed",
                content: [{ type: "output_text", text: "done" }],
              },
            ];
        return { usage: new Usage(), output, responseId: `r${turn}` };
      },
      async *getStreamedResponse() {
        throw new Error("not scripted");
      },
    };
    const agent = new Agent({
      name: "clerk",
      instructions: "Confirm the order.",
      tools: own ? [agentTool(own)] : openai.emailTools(mo, { from: FROM, calls }),
      model,
    });
    const result = await new Runner({ tracingDisabled: true }).run(agent, "Go.", { maxTurns: 20 });
    assert.equal(result.finalOutput, "done");
    return result.newItems
      .filter((item) => item.type === "tool_call_output_item")
      .map((item) => (typeof item.output === "string" ? JSON.parse(item.output) : item.output));
  },
};

const REMEMBER = { "Vercel AI SDK": vercel.FirstResults, "OpenAI Agents": openai.FirstResults };

/** An email with the call that repeated it: the server may write such calls down a second late. */
async function told(mo, id) {
  for (let tries = 0; ; tries++) {
    const email = await mo.emails.get(id);
    if (email.suppressed_calls.length > 0 || tries > 50) return email;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const REWORDED = { subject: "News about what you bought", text: "The courier has picked it up this morning." };
const ALREADY = /^already_(accepted|sent)$/;

/** A mail about an order of its own, to a recipient of its own. */
function unique() {
  const id = Math.random().toString(36).slice(2);
  return { ...mail, to: `ada-${id}@example.com`, entity: `order_${id}`, text: "Thank you, it is on its way." };
}

async function faultProxy(path, body) {
  return (await fetch(CONTROL + path, body && { method: "POST", body: JSON.stringify(body) })).json();
}

/** A client behind a proxy that plays these faults. */
async function through(faults) {
  const { url } = await faultProxy("/proxy", { to: SERVER, faults });
  return new Mailonce({ baseUrl: url, backoffMs: 5, timeoutMs: 2000 });
}

/** How many mails for `to` the sink has, a while after the first. */
async function mailsFor(to) {
  const count = async () => (await faultProxy(`/mails?to=${encodeURIComponent(to)}`)).count;
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  for (let tries = 0; tries < 100 && (await count()) === 0; tries++) await pause(50);
  await pause(150);
  return count();
}

/** What a framework tells a model of each tool. */
const SHOWN = {
  "Vercel AI SDK": (options) =>
    Object.entries(vercel.emailTools(new Double().client(), options)).map(([name, tool]) => ({
      name,
      description: tool.description,
      schema: tool.inputSchema.jsonSchema,
    })),
  "OpenAI Agents": (options) =>
    openai.emailTools(new Double().client(), options).map(({ name, description, parameters, strict }) => {
      assert.equal(strict, true);
      assert.deepEqual(parameters.required, Object.keys(parameters.properties));
      return { name, description, schema: parameters };
    }),
};

/** The order of required fields means nothing, and a strict schema has its own. */
const inOrder = (schema) =>
  JSON.parse(JSON.stringify(schema, (key, value) => (key === "required" ? [...value].sort() : value)));

for (const [name, shown] of Object.entries(SHOWN)) {
  test(`${name}: a model gets the tools of the server`, () => {
    const tools = shown();
    assert.equal(tools.length, 10);
    for (const [n, { name, description, inputSchema }] of LISTED.entries()) {
      assert.deepEqual([tools[n].name, tools[n].description], [name, description]);
      assert.deepEqual(inOrder(tools[n].schema.properties), inOrder(inputSchema.properties));
      assert.equal(tools[n].schema.additionalProperties, false);
      for (const field of inputSchema.required ?? []) assert.ok(tools[n].schema.required.includes(field));
      // What a strict mode makes a model fill in may be null.
      for (const field of Object.keys(inputSchema.properties)) {
        const optional = !inputSchema.required?.includes(field);
        assert.equal(inputSchema.properties[field].type.includes("null"), optional, `${name} ${field}`);
      }
    }
  });

  test(`${name}: a choice of tools, and an inbox that the model does not choose`, () => {
    const tools = shown({ from: FROM, tools: ["get_outcome", "send_email"] });
    assert.deepEqual(
      tools.map((tool) => tool.name),
      ["send_email", "get_outcome"],
    );
    assert.ok(!("inbox" in tools[0].schema.properties));
    assert.throws(() => shown({ tools: ["send_mail"] }), TypeError);
  });
}

test("the framework asks a person before the tools that need it", async () => {
  const options = { needsApproval: ["send_email"] };
  const tools = vercel.emailTools(new Double().client(), options);
  assert.deepEqual([tools.send_email.needsApproval, tools.read_message.needsApproval], [true, false]);
  const [send, reply] = openai.emailTools(new Double().client(), options);
  assert.deepEqual([await send.needsApproval(), await reply.needsApproval()], [true, false]);
});

test("a model waits for a mail, reads it and takes its code, which another run does not get", async () => {
  const double = new Double();
  const mo = double.client();
  const tools = vercel.emailTools(mo, { inbox: FROM });
  const call = (name, input) => tools[name].execute(input, { toolCallId: "c" });
  await mo.inboxes.create({ address: FROM });
  assert.equal((await call("wait_for_message", { has: "code" })).status, "timeout");
  const message = double.receive({ to: FROM, subject: "Your code", text: "It is 123456.", code: "123456" });
  const arrived = await call("wait_for_message", { has: "code", timeout_s: null });
  assert.deepEqual([arrived.status, arrived.message], ["arrived", message]);
  assert.equal((await call("read_message", { message })).text, "It is 123456.");
  for (const [who, status] of [
    ["a", "taken"],
    ["b", "none"],
    ["a", "taken"],
  ]) {
    assert.equal((await call("take_artifact", { type: "code", for: who })).status, status);
  }
  assert.equal((await call("ask_human", { entity: "e", question: "?" })).status, "not_in_double");
});

test("a temporary error of the server is retried, and then told", async () => {
  let statuses = ["unavailable", "internal", "accepted"];
  const fetch = async () => {
    const status = statuses.shift();
    const result = { structuredContent: { status, next: "…" }, isError: status !== "accepted" };
    return new Response(JSON.stringify({ jsonrpc: "2.0", id: 1, result }));
  };
  const client = (maxRetries) => new Mailonce({ apiKey: "k", backoffMs: 0, maxRetries, fetch });
  assert.equal((await client(2).callTool("send_email", mail)).status, "accepted");
  statuses = ["unavailable", "unavailable"];
  assert.equal((await client(1).callTool("send_email", mail)).status, "unavailable");
  assert.deepEqual(statuses, []);
});

test("a result that may change is not remembered", async () => {
  const double = new Double();
  const mo = double.client();
  await mo.inboxes.create({ address: FROM });
  const tools = vercel.emailTools(mo, { from: FROM, calls: new vercel.FirstResults() });
  const take = () => tools.take_artifact.execute({ type: "code", for: "a" }, { toolCallId: "c" });
  assert.equal((await take()).status, "none");
  double.receive({ to: FROM, code: "123456" });
  assert.equal((await take()).value, "123456");
});

for (const [name, run] of Object.entries(FRAMEWORKS)) {
  test(`${name}: repeated, re-worded and doubled calls send one mail and one reply`, async () => {
    const double = new Double();
    const message = double.receive({ to: FROM, from: "ann@example.com", subject: "Hours", text: "When do you open?" });
    const answers = await run(double.client(), turnsFor(message));
    assert.equal(answers.length, 7);
    expectSentOnce(double, { to: "ada@example.com", intent: { entity: "order_4821" } });
    expectSentOnce(double, { reply_to_message: message });
    assert.equal(double.mails.length, 2);
    assert.equal(new Set(answers.slice(0, 4).map((answer) => answer.email)).size, 1);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [
      "accepted",
      "accepted",
      "already_answered",
      "already_answered",
      "already_sent",
      "already_sent",
      "already_sent",
    ]);
    assert.deepEqual(double.mails[0].call, { id: "call_1" }); // for correlation
    assert.equal(double.mails[0].metadata, undefined); // it is no part of the key, nor of what the mail means
    assert.match(double.mails[0].key, /^i1_/);
  });

  test(`${name}: a repeated call under another id is the same call, and both ids are kept`, async () => {
    for (const mo of [new Double().client(), new Mailonce()]) {
      const own = unique();
      const answers = await run(mo, [[["send_email", own]], [["send_email", own]]]);
      assert.equal(answers[0].status, "accepted");
      assert.match(answers[1].status, ALREADY);
      const email = await told(mo, answers[0].email);
      assert.deepEqual(email.call, { id: "call_1" });
      const [again] = email.suppressed_calls;
      assert.deepEqual([again.reason, again.call], ["key_replay", { id: "call_2" }]); // not payload_differs
      const sent = await mo.emails.send(
        {
          from: FROM,
          to: own.to,
          subject: own.subject,
          text: own.text,
          intent: { type: own.type, entity: own.entity },
        },
        { callId: "call_3" },
      );
      assert.deepEqual([sent.dedupe.outcome, sent.dedupe.payload_differs], ["replayed", false]);
    }
  });

  test(`${name}: the answer is lost after the commit, the process dies, and the run is made again`, async () => {
    const double = new Double();
    const mo = double.client({ maxRetries: 1 });
    double.loseAnswers(2); // both tries of the first call
    const answers = await run(mo, [[["send_email", mail]], [["send_email", mail]]]);
    assert.deepEqual(
      answers.map((answer) => answer.status),
      ["no_answer", "already_sent"],
    );
    await run(double.client(), [[["send_email", reworded]]]); // another run, other words
    expectSentOnce(double);
  });

  test(`${name}: an identical call in one loop is answered from its first result`, async () => {
    const double = new Double();
    const answers = await run(double.client(), [[["send_email", mail]], [["send_email", mail]]], new REMEMBER[name]());
    assert.equal(double.calls, 1);
    assert.deepEqual(answers[0], answers[1]);
    expectSentOnce(double);
  });

  test(`${name}: what a model gets wrong is told, not thrown`, async () => {
    const { entity, ...without } = mail;
    for (const mo of [new Double().client(), new Mailonce()]) {
      const [missing, unknown, nobody] = await run(mo, [
        [["send_email", without]],
        [["send_email", { ...mail, key: "random" }]],
        [["reply_email", { message: "00000000-0000-7000-8000-000000000404", text: "t" }]],
      ]);
      const of = ({ status, field, detail }) => [status, field, detail];
      assert.deepEqual(of(missing), ["invalid_type", "entity", "missing field `entity`"]);
      assert.deepEqual(of(unknown), ["unknown_field", "key", "there is no field `key`"]);
      assert.equal(nobody.status, "not_found");
      for (const { next, detail } of [missing, unknown, nobody]) assert.ok(next && detail);
    }
  });

  test(`${name}: a model cannot send from another inbox`, async () => {
    const double = new Double();
    await run(double.client(), [[["send_email", { ...mail, inbox: "boss@mailonce.test" }]]]);
    assert.equal(double.mails[0].from, FROM);
  });

  test(`${name}: a refused key is told with what to do`, async () => {
    const [answer] = await run(new Mailonce({ apiKey: "mo_wrong" }), [[["send_email", mail]]]);
    assert.deepEqual([answer.status, answer.code, answer.retry], ["refused", "unauthorized", "never"]);
    assert.ok(answer.detail && answer.next);
  });

  test(`${name}: answers are lost on the way, and the call is made again`, async () => {
    const own = unique();
    const answers = await run(await through(["503", "lose", "cut"]), [[["send_email", own]], [["send_email", own]]]);
    assert.deepEqual(new Set(answers.map((answer) => answer.email)).size, 1);
    for (const answer of answers) assert.match(answer.status, ALREADY);
    assert.equal(await mailsFor(own.to), 1);
  });

  test(`${name}: other words, spaces, cases and spellings of a name send one mail`, async () => {
    const own = unique();
    const types = ["dup.x", " dup.x", "dup.x ", "Dup.X", "dup_x", "dup-x", "dup x"];
    const turns = types.map((type) => [["send_email", { ...own, type }]]);
    turns.push([["send_email", { ...own, type: "dup.x", subject: "Your order", text: "It is on its way to you." }]]);
    turns.push([["send_email", { ...own, type: "dup.x", entity: own.entity.toUpperCase() }]]);
    turns.push([["send_email", { ...own, ...REWORDED, type: "Dup-X", entity: own.entity.toUpperCase() }]]);
    const answers = await run(new Mailonce(), turns);
    assert.equal(answers[0].status, "accepted");
    for (const n of [1, 2, 7]) assert.match(answers[n].status, ALREADY);
    for (const n of [3, 4, 5, 6, 8, 9]) assert.deepEqual([n, answers[n].status], [n, "looks_duplicate"]);
    assert.equal(await mailsFor(own.to), 1);
  });

  test(`${name}: a recurring mail under another spelling is sent once in its period`, async () => {
    const own = { ...unique(), type: "weekly.report", period: "2026-W46" };
    const respelled = { ...own, type: "Weekly Report" };
    const turns = [[["send_email", own]], [["send_email", { ...respelled, ...REWORDED }]]];
    const [first, again] = await run(new Mailonce(), turns);
    assert.deepEqual([first.status, again.status], ["accepted", "looks_duplicate"]);
    assert.equal(await mailsFor(own.to), 1);
    const [later] = await run(new Mailonce(), [[["send_email", { ...respelled, period: "2026-W47" }]]]);
    assert.equal(later.status, "accepted");
  });

  test(`${name}: empty values of a strict schema say nothing`, async () => {
    const own = unique();
    const filled = { ...own, html: "", version: 0, period: null, distinct_token: "", inbox: null };
    const answers = await run(new Mailonce(), [[["send_email", filled]], [["send_email", own]]]);
    assert.equal(answers[0].email, answers[1].email);
    assert.equal(await mailsFor(own.to), 1);
  });

  test(`${name}: a tool of your own is safe to repeat`, async () => {
    const mo = new Mailonce();
    const unique = `${name}-${Math.random()}`.replace(/ /g, "-");
    const ran = [];
    const schema = z.object({ order: z.string(), words: z.string() });
    const refund = {
      name: "refund",
      description: "Refunds an order.",
      inputSchema: schema,
      parameters: schema,
      execute: async ({ order }, ...rest) => {
        ran.push(rest.at(-1).once.key);
        return { refunded: order };
      },
    };
    const safe = onceTool(mo, refund, { key: ({ order }) => `refund-${order}-${unique}` });
    const call = (order, words) => [["refund", { order, words }]];
    const turns = [call("7", "please"), call("7", "again"), call("8", "too")];
    assert.deepEqual(await run(mo, turns, undefined, safe), [{ refunded: "7" }, { refunded: "7" }, { refunded: "8" }]);
    assert.deepEqual(ran, [`refund-7-${unique}`, `refund-8-${unique}`]);
  });
}
