// The storm: one email, sent many times at once with the same idempotency key.
import { call } from "../../api/client";
import { asProblem, type ApiProblem } from "../../api/problem";
import type { Schema } from "../../api/types";

export const CALLS = 50;

export interface Call {
  number: number;
  /** Milliseconds since the first call began. */
  from: number;
  to: number | null;
  /** `first` created the email; `replayed` was answered with it. */
  outcome: "running" | "first" | "replayed" | "failed";
  email?: string;
  problem?: ApiProblem;
}

export interface StormMail {
  from: string;
  to: string;
  key: string;
}

const body = ({ from, to }: StormMail) => ({
  from, to: [to], subject: `Sent ${CALLS} times, delivered once`, text: `${CALLS} calls asked for this email at the same time, with one idempotency key. It was sent once.`,
});

async function one(mail: StormMail, number: number, start: number): Promise<Call> {
  const from = performance.now() - start;
  const end = () => performance.now() - start;
  try {
    const response = await call("POST", "/v1/emails", body(mail), { key: mail.key, headers: { "mailonce-call-id": `storm-${number}` } });
    const receipt = (await response.json()) as Schema["SendReceiptBody"];
    return { number, from, to: end(), outcome: receipt.dedupe.outcome === "first" ? "first" : "replayed", email: receipt.id };
  } catch (error) {
    return { number, from, to: end(), outcome: "failed", problem: asProblem(error) };
  }
}

/** Starts all calls in the same moment and reports each answer. */
export async function storm(mail: StormMail, report: (calls: Call[]) => void): Promise<Call[]> {
  const start = performance.now();
  const calls: Call[] = Array.from({ length: CALLS }, (_, index) => ({ number: index + 1, from: 0, to: null, outcome: "running" }));
  report([...calls]);
  await Promise.all(calls.map(async ({ number }, index) => {
    calls[index] = await one(mail, number, start);
    report([...calls]);
  }));
  return calls;
}
