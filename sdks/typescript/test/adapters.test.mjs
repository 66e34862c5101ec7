// The adapters, driven by scripted models that repeat, re-word and run tools twice: one mail, one reply.

import assert from "node:assert/strict";
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

for (const [name, run] of Object.entries(FRAMEWORKS)) {
  test(`${name}: repeated, re-worded and doubled calls send one mail and one reply`, async () => {
    const double = new Double();
    const message = double.receive({ to: FROM, from: "ann@example.com", subject: "Hours", text: "When do you open?" });
    const answers = await run(double.client(), turnsFor(message));
    assert.equal(answers.length, 7);
    expectSentOnce(double, { to: "ada@example.com", intent: { entity: "order_4821" } });
    expectSentOnce(double, { reply_to_message: message });
    assert.equal(double.mails.length, 2);
    assert.equal(new Set(answers.slice(0, 4).map((answer) => answer.id)).size, 1);
    assert.deepEqual(answers.map((answer) => answer.status).sort(), [
      "accepted",
      "accepted",
      "replayed",
      "replayed",
      "replayed",
      "replayed",
      "replayed",
    ]);
    assert.deepEqual(double.mails[0].call, { id: "call_1" }); // for correlation
    assert.equal(double.mails[0].metadata, undefined); // it is no part of the key, nor of what the mail means
    assert.match(double.mails[0].key, /^i1_/);
  });

  test(`${name}: a repeated call under another id is the same call, and both ids are kept`, async () => {
    for (const mo of [new Double().client(), new Mailonce()]) {
      const own = { ...mail, entity: `${name} ${Math.random()}` };
      const answers = await run(mo, [[["send_email", own]], [["send_email", own]]]);
      assert.deepEqual(
        answers.map((answer) => answer.status),
        ["accepted", "replayed"],
      );
      const email = await told(mo, answers[0].id);
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
      ["no_answer", "replayed"],
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
    const double = new Double();
    const { entity, ...without } = mail;
    const [missing, unknown, nobody] = await run(double.client(), [
      [["send_email", without]],
      [["send_email", { ...mail, key: "random" }]],
      [["reply_email", { message: "m-404", text: "t" }]],
    ]);
    assert.deepEqual([missing.status, missing.code], ["refused", "invalid_field"]);
    assert.deepEqual([unknown.status, unknown.code], ["refused", "invalid_field"]);
    assert.deepEqual([nobody.status, nobody.code], ["refused", "not_found"]);
    assert.equal(double.mails.length, 0);
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
