// Runs any side effect once: one caller runs it, all others get its result. Uses the claims of the server.

import { at, type CallOptions, type Caller, randomKey, pause } from "./call.js";
import { MailonceError, toAnswer } from "./error.js";
import type { Mailonce } from "./index.js";
import { checkKey } from "./key.js";
import { sha256 } from "./sha256.js";
import type { Ttl } from "./wire.js";

/** What a side effect is about, in the place of a key. */
export interface ClaimIntent {
  type: string;
  entity: string;
  /** Increase it to do the same again on purpose; 1 by default. */
  version?: number;
  /** The day, week or run of a side effect that recurs. The server computes an object from its clock. */
  period?: string | { every: "day" | "week" | "month"; time_zone?: string; grace_s?: number };
}

/** A claim whose holder was lost after it began. */
export interface UnknownClaim {
  id: string;
  /** The idempotency key that the lost holder passed to the other system. */
  downstreamKey: string | undefined;
}

/**
 * What an error of the function means. `failed`: it is final, and later callers get the same error. `retry`: surely
 * nothing happened, and the next caller may run it. `unknown`: it may have happened.
 */
export type AfterError = "failed" | "retry" | "unknown";

export interface OnceOptions<T = unknown> {
  /** Seconds after which this process counts as lost, 1 to 3,600; 60 by default. The lease is renewed while the function runs. */
  leaseS?: number;
  /** While another caller runs it, wait for its result: true, or the most seconds to wait. */
  wait?: boolean | number;
  /** Looks up the side effect after a holder was lost. Returns its result, or null if it did not happen. */
  verify?: (claim: UnknownClaim) => Promise<{ result: T } | null | undefined>;
  /** By default an error is `failed`, save for a `MailonceError` whose call may still succeed: that is `unknown`. */
  onError?: (error: unknown) => AfterError;
  /** A hash of the content of the side effect. Another hash under the same key throws `key_mismatch`. */
  fingerprint?: string;
  /** A label that other callers see while it runs. */
  label?: string;
  /** If this process is lost: `hold` (default) waits for evidence or a person, `retry` frees the claim after 10 minutes. */
  onUnknown?: "hold" | "retry";
  /** `later`: the side effect begins with `run.begin()`. A run that is lost or fails before that is free for the next caller. */
  begin?: "now" | "later";
  /** How long the result is remembered; 35 days by default. */
  ttl?: Ttl;
  /** Cancels calling and waiting, but not the function. */
  signal?: AbortSignal;
}

type Won = {
  id: string;
  token: string;
  key: string;
  fence: number;
  downstream_key: string;
  may_repeat: boolean;
  period: string | null;
  state: string;
};
type Ended = { id: string; state: string; result?: unknown; result_omitted: boolean; reason: string | null };

/** What the function gets: the claim that it runs under. */
export class OnceRun {
  readonly id: string;
  readonly key: string;
  /** Fencing number; grows with each holder of the claim. */
  readonly fence: number;
  /** Pass it to the other system as its idempotency key: it is the same for every holder of this claim. */
  readonly downstreamKey: string;
  /** Whether an earlier holder may have performed the side effect. */
  readonly mayRepeat: boolean;
  readonly period: string | null;
  readonly #calls: Caller;
  readonly #token: string;
  readonly #options: OnceOptions<never>;
  readonly #lost = new AbortController();
  readonly #over = new AbortController();
  readonly #renewing: Promise<void>;
  #begun: boolean;

  constructor(calls: Caller, won: Won, leaseS: number, options: OnceOptions<never>) {
    this.id = won.id;
    this.key = won.key;
    this.fence = won.fence;
    this.downstreamKey = won.downstream_key;
    this.mayRepeat = won.may_repeat;
    this.period = won.period;
    this.#calls = calls;
    this.#token = won.token;
    this.#options = options;
    this.#begun = won.state !== "claimed";
    this.#renewing = this.#renew(leaseS);
  }

  /** Fires when the claim is lost: a person resolved it, or another caller holds it. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  get begun(): boolean {
    return this.#begun;
  }

  /** Begins the side effect of a claim with `begin: "later"`. Throws if another caller has it by now. */
  async begin(): Promise<void> {
    await this.report("begin", {});
    this.#begun = true;
  }

  /**
   * Runs a part of the function once. If the run is repeated, a finished step returns its stored result. A step has a `ttl`
   * of its own, 35 days by default, because it ends before its run.
   */
  step<T>(name: string, work: (run: OnceRun) => Promise<T>, options: OnceOptions<T> = {}): Promise<T> {
    const { leaseS, wait, onUnknown, onError, signal } = this.#options;
    const label = Array.from(`${this.key} ${name}`).slice(0, 128).join("");
    const inherited = { leaseS, wait, onUnknown, onError, signal, label };
    return once(this.#calls, stepKey(this.key, name), work, { ...inherited, ...options });
  }

  /** @internal */
  report(verb: string, body: object, options?: CallOptions): Promise<unknown> {
    return report(this.#calls, this.id, verb, { token: this.#token, ...body }, options);
  }

  /** @internal */
  async stop(): Promise<void> {
    this.#over.abort();
    await this.#renewing;
  }

  /** Renews until the end of the work. It continues after an outage, because a holder that returns keeps its claim. */
  async #renew(leaseS: number): Promise<void> {
    const third = (leaseS * 1000) / 3;
    const once = { maxRetries: 0, timeoutMs: Math.max(third, 1000) };
    for (let idle = third; ;) {
      try {
        await pause(idle, this.#over.signal);
      } catch {
        return;
      }
      try {
        await this.report("renew", { lease_s: leaseS }, { ...once, signal: this.#over.signal });
        idle = third;
      } catch (error) {
        idle = third / 4; // there is time for another try before the lease ends
        if (error instanceof MailonceError && error.retry === "never") return this.#lost.abort(error);
      }
    }
  }
}

/** The key of a step: the same in every SDK. Vectors: sdks/contract/steps.json. */
export function stepKey(parent: string, name: string): string {
  const digest = sha256(new TextEncoder().encode(`${parent}\0${name}`));
  return "s1_" + Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Runs `work` once for this key, and gives its result to every caller. */
export async function once<T>(
  calls: Caller,
  key: string | ClaimIntent,
  work: (run: OnceRun) => Promise<T>,
  options: OnceOptions<T> = {},
): Promise<T> {
  const leaseS = options.leaseS ?? 60;
  const answer = await acquire(calls, key, leaseS, options as OnceOptions<never>);
  if (answer instanceof MailonceError) return settle(calls, answer, options);
  if (!("token" in answer)) return replayed<T>(answer);
  const run = new OnceRun(calls, answer, leaseS, options as OnceOptions<never>);
  try {
    return await perform(run, calls, work, options);
  } finally {
    await run.stop();
  }
}

/** The claim, its stored end, or the error `unknown`. Other errors are thrown. */
async function acquire(
  calls: Caller,
  key: string | ClaimIntent,
  lease_s: number,
  options: OnceOptions<never>,
): Promise<Won | Ended | MailonceError> {
  const { fingerprint, label, ttl, begin, onUnknown: on_unknown, signal } = options;
  let named: Named = typeof key === "string" ? { key: checkKey(key) } : { intent: key };
  // The holder makes repeats of this very call safe. A random idempotency key would be the key of the claim.
  const rest = { holder: randomKey(), lease_s, fingerprint, label, ttl, begin, on_unknown };
  const until = Date.now() + (options.wait === true ? Infinity : Number(options.wait ?? 0) * 1000);
  for (let asked = 0; ; asked++) {
    const body = { ...named, ...rest };
    try {
      return await calls.json<Won | Ended>({ method: "POST", path: "/v1/claims", body }, { signal });
    } catch (error) {
      if (!(error instanceof MailonceError)) throw error;
      if (error.code === "unknown") return error;
      const idle = Math.min(Number(error.details["retry_after"] ?? 2) * 1000, 2000, 250 * 2 ** asked);
      if (error.code !== "busy" || Date.now() + idle > until) throw error;
      named = samePeriod(named, error.details["period"]);
      await pause(idle, signal).catch(() => undefined); // the next call throws
    }
  }
}

type Named = { key: string } | { intent: ClaimIntent };

/** Keeps the period of the first response. Computed again after the period changed, it would be another run. */
function samePeriod(named: Named, period: unknown): Named {
  if (!("intent" in named) || typeof named.intent.period !== "object" || typeof period !== "string") return named;
  return { intent: { ...named.intent, period } };
}

async function perform<T>(
  run: OnceRun,
  calls: Caller,
  work: (run: OnceRun) => Promise<T>,
  options: OnceOptions<T>,
): Promise<T> {
  if (run.mayRepeat && options.verify) {
    const found = await lookUp(run, options.verify).catch(async (error: MailonceError) => {
      // This run did not begin, so the next caller may look again.
      await run.report("fail", { retryable: true, reason: shortened(error) }).catch(() => undefined);
      throw error;
    });
    if (found) return recordFound(calls, run.id, found.result);
  }
  let result: T;
  try {
    result = await work(run);
  } catch (error) {
    const after = (options.onError ?? ((thrown) => meaning(thrown, run)))(error);
    // The caller's own error is the one to throw. A claim whose failure is not recorded becomes unknown.
    const body = { retryable: after === "retry", reason: shortened(error) };
    if (after !== "unknown") await run.report("fail", body).catch(() => undefined);
    throw error;
  }
  return record(run, result);
}

function meaning(error: unknown, run: OnceRun): AfterError {
  if (!run.begun) return "retry";
  return error instanceof MailonceError && error.retry !== "never" ? "unknown" : "failed";
}

/** Stores the result. Everybody gets what the server stores, the first caller included. */
async function record<T>(run: OnceRun, result: T): Promise<T> {
  const { stored, fault } = tryJson(result);
  try {
    await reportFact((body) => run.report("complete", body), stored);
  } catch (cause) {
    throw new MailonceError({
      code: "not_recorded",
      detail: `the function of claim ${run.id} ended well, but its result could not be stored`,
      next: "Do not run it again: it happened. The claim is unknown once its lease has ended; `verify` or a person settles it.",
      details: { id: run.id, result: stored },
      cause,
    });
  }
  if (fault !== undefined) throw fault;
  return stored as T;
}

/** Reports that it happened, without the result if the server cannot store it. */
async function reportFact(send: (body: object) => Promise<unknown>, result: unknown): Promise<void> {
  try {
    await send({ result });
  } catch (error) {
    if (!(error instanceof MailonceError) || ![400, 413, 422].includes(error.status)) throw error;
    await send({});
  }
}

function replayed<T>({ id, state, result, result_omitted, reason }: Ended): T {
  if (state === "completed" && !result_omitted) return (result ?? null) as T;
  if (state === "completed") {
    throw new MailonceError({
      code: "result_omitted",
      detail: `claim ${id} is completed, but its result was too large to store`,
      next: "Do not run it again: it happened. Read its result from the other system.",
      details: { id },
    });
  }
  throw new MailonceError({
    code: `claim_${state}`,
    detail: `claim ${id} is ${state}${reason ? `: ${reason}` : ""}`,
    next: "Use another key, or a higher version of the intent, to do it again on purpose.",
    details: { id, reason },
  });
}

/** Looks up what a lost holder did. Only finding it ends the claim, because not finding it may be too early. */
async function settle<T>(calls: Caller, error: MailonceError, { verify }: OnceOptions<T>): Promise<T> {
  const { id, downstream_key } = error.details as { id: string; downstream_key?: string };
  if (verify !== undefined) {
    const found = await lookUp({ id, downstreamKey: downstream_key }, verify);
    if (found) return recordFound(calls, id, found.result);
    await report(calls, id, "evidence", { says: "not_found" });
  }
  throw unknown(id, `the holder of claim ${id} was lost after it began`, undefined, error.details);
}

async function lookUp<T>(
  { id, downstreamKey }: UnknownClaim,
  verify: NonNullable<OnceOptions<T>["verify"]>,
): Promise<{ result: T } | null | undefined> {
  try {
    return await verify({ id, downstreamKey });
  } catch (cause) {
    throw unknown(id, `the look-up of claim ${id} failed: ${shortened(cause)}`, cause);
  }
}

function unknown(id: string, detail: string, cause?: unknown, details: object = { id }): MailonceError {
  return new MailonceError({
    code: "unknown",
    detail,
    next: `Do not do it again: it may have happened. Pass verify to look it up, or ask a person: mailonce claims resolve ${id}`,
    status: 409,
    retry: "later",
    details: { ...details },
    cause,
  });
}

async function recordFound<T>(calls: Caller, id: string, found: T): Promise<T> {
  const { stored, fault } = tryJson(found);
  await reportFact((body) => report(calls, id, "evidence", { says: "done", ...body }), stored);
  if (fault !== undefined) throw fault;
  return stored as T;
}

function report(calls: Caller, id: string, verb: string, body: object, options?: CallOptions): Promise<unknown> {
  return calls.json({ method: "POST", path: `/v1/claims/${at(id)}/${verb}`, body }, options);
}

/** A value after a round trip through JSON, or why it is not JSON. */
function tryJson<T>(value: T): { stored?: T; fault?: unknown } {
  try {
    return { stored: JSON.parse(JSON.stringify(value) ?? "null") as T };
  } catch (fault) {
    return { fault };
  }
}

function shortened(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  // Half of a character, as cutting a string leaves it, is no text for the server.
  return Array.from(text.replace(/\p{Surrogate}/gu, "\ufffd"))
    .slice(0, 1000)
    .join("");
}

export interface OnceToolOptions extends OnceOptions<never> {
  /** What the call is about: a key or an intent, from the tool's arguments and never from the id of a call. */
  key: (input: any) => string | ClaimIntent;
}

type Execute = (input: unknown, ...rest: unknown[]) => unknown;

/**
 * Makes a tool safe to repeat: its function, or the object with `execute` that the Vercel AI SDK and OpenAI Agents
 * make a tool of. The function finds its run as `once` in its last argument. A refusal is a value, because many
 * frameworks repeat a call that throws.
 */
export function onceTool<T extends object>(mo: Mailonce, tool: T, { key, ...options }: OnceToolOptions): T {
  const call = (typeof tool === "function" ? tool : (tool as { execute?: unknown }).execute) as Execute;
  if (typeof call !== "function") throw new TypeError("the tool has no execute: pass what its framework makes it of");
  const execute = async (input: unknown, ...rest: unknown[]): Promise<unknown> => {
    const last = rest.pop() as object | undefined;
    try {
      return await mo.once<unknown>(
        key(input),
        async (once) => call.call(tool, input, ...rest, { ...last, once }),
        options as OnceOptions,
      );
    } catch (error) {
      if (!(error instanceof MailonceError) || error.code === "aborted") throw error;
      return toAnswer(error);
    }
  };
  return (typeof tool === "function" ? execute : { ...tool, execute }) as T;
}
