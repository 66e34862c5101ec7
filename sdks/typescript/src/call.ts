// One call: the same bytes under the same key until there is an answer, within limits of time and tries.

import { aborted, MailonceError, noAnswer, refusal } from "./error.js";
import { checkKey } from "./key.js";

/** How the client behaves. */
export interface ClientOptions {
  /** `MAILONCE_URL` by default, else `http://127.0.0.1:6245`. */
  baseUrl?: string;
  /** `MAILONCE_API_KEY` by default. */
  apiKey?: string;
  /**
   * How often a call is made again when it was not answered; 12 by default. With the usual `backoffMs` that is 32 to 64
   * seconds of pauses, enough for a restart of the server.
   */
  maxRetries?: number;
  /** How long one try may take; 10,000 by default. What the server is asked to hold comes on top. */
  timeoutMs?: number;
  /** The pause before the first repeat, doubled for each further one up to 8 s; 250 by default. A random part of up to half is left out. */
  backoffMs?: number;
  fetch?: typeof fetch;
}

/** What every call takes besides what it says. */
export interface CallOptions {
  /** Ends the call with the error `aborted`. It may have arrived all the same: the same key finds out. */
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
  maxRetries?: number | undefined;
  /** The name of this wish. Calls other than sends get one of their own, so that their repeats are safe. */
  idempotencyKey?: string | undefined;
  /** The id that a framework gave this call. Told along for correlation; it decides nothing. */
  callId?: string | undefined;
}

export interface Call {
  method: string;
  path: string;
  query?: object | undefined;
  body?: unknown;
  headers?: Record<string, string | undefined>;
  /** Seconds that the server may hold the call. */
  hold?: number | undefined;
  /** What names this call when the caller does not: `mint` a key, or nothing (it is safe to repeat by nature). */
  name?: "mint" | "nothing";
  /** A call that nothing names is made once: a repeat could do it twice. */
  repeat?: boolean;
}

export interface Answer {
  status: number;
  headers: Headers;
  bytes: Uint8Array;
}

/** Bytes, with what their sender says they are. */
export interface Download {
  /** The type that was declared; never trust it. */
  contentType: string;
  content: Uint8Array;
}

const LONGEST_PAUSE = 8_000;
/** A longer Retry-After is for the caller to wait. */
const LONGEST_TOLD_PAUSE = 60_000;
const VERSION = "0.1.0";
/** The wire format that this SDK was made for. */
const WIRE = "2026-11-15";

export class Caller {
  readonly baseUrl: string;
  readonly maxRetries: number;
  readonly timeoutMs: number;
  readonly backoffMs: number;
  readonly #apiKey: string;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions = {}) {
    this.baseUrl = (options.baseUrl ?? environment("MAILONCE_URL") ?? "http://127.0.0.1:6245").replace(/\/+$/, "");
    const key = options.apiKey ?? environment("MAILONCE_API_KEY");
    if (!key) {
      throw new MailonceError({
        code: "unauthorized",
        detail: "there is no API key",
        next: "Set MAILONCE_API_KEY or pass apiKey.",
      });
    }
    this.#apiKey = key;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.maxRetries = options.maxRetries ?? 12;
    this.timeoutMs = options.timeoutMs ?? 10_000;
    this.backoffMs = options.backoffMs ?? 250;
  }

  /** Makes a call and reads its answer as JSON; `undefined` for 204. */
  async json<T>(call: Call, options: CallOptions = {}): Promise<T> {
    const read = (bytes: Uint8Array): unknown => JSON.parse(new TextDecoder().decode(bytes));
    const answer = await this.answer(call, options, read);
    return (answer.status === 204 ? undefined : read(answer.bytes)) as T;
  }

  /** Makes a call whose answer is bytes. */
  async download(path: string, options: CallOptions = {}): Promise<Download> {
    const answer = await this.answer({ method: "GET", path, headers: { Accept: "*/*" } }, options);
    return {
      contentType: answer.headers.get("content-type") ?? "application/octet-stream",
      content: answer.bytes,
    };
  }

  /** Makes a call until it is answered. A success that `read` cannot read was cut on its way and is asked for again. */
  async answer(
    call: Call,
    options: CallOptions,
    read: (bytes: Uint8Array) => unknown = () => undefined,
  ): Promise<Answer> {
    const request = this.request(call, options);
    const tries = call.repeat === false ? 1 : 1 + (options.maxRetries ?? this.maxRetries);
    for (let tried = 1; ; tried++) {
      if (options.signal?.aborted) throw aborted(options.signal);
      const told = await this.#once(request, call, options, read);
      if (!(told instanceof Lost)) return told;
      if (tried >= tries || !told.again) throw told.error;
      await pause(told.pauseMs ?? this.backoff(tried), options.signal).catch(() => undefined); // the next round tells
    }
  }

  /** The request of a call. Its bytes are made once, so that every repeat is the same. */
  request(call: Call, options: CallOptions): { url: string; init: RequestInit } {
    const headers: Record<string, string> = {
      Authorization: `Bearer ${this.#apiKey}`,
      Accept: "application/json",
      "Mailonce-Client": `typescript/${VERSION}`,
      "Mailonce-Version": WIRE,
    };
    const key =
      options.idempotencyKey === undefined
        ? call.name === "mint"
          ? minted()
          : undefined
        : checkKey(options.idempotencyKey);
    if (key !== undefined) headers["Idempotency-Key"] = key;
    if (options.callId !== undefined) headers["Mailonce-Call-Id"] = encodeURIComponent(options.callId).slice(0, 256);
    for (const [name, value] of Object.entries(call.headers ?? {})) if (value !== undefined) headers[name] = value;
    // A redirect would turn a POST into something else, or show the API key to a stranger.
    const init: RequestInit = { method: call.method, headers, redirect: "manual" };
    if (call.body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(call.body);
    }
    return { url: this.baseUrl + call.path + search(call.query), init };
  }

  /** Opens a stream, once. */
  async open(call: Call, signal: AbortSignal): Promise<Response> {
    const { url, init } = this.request(call, {});
    return this.#fetch(url, { ...init, signal });
  }

  async #once(
    request: { url: string; init: RequestInit },
    call: Call,
    options: CallOptions,
    read: (bytes: Uint8Array) => unknown,
  ): Promise<Answer | Lost> {
    const limit = (options.timeoutMs ?? this.timeoutMs) + (call.hold ?? 0) * 1000;
    const clock = deadline(limit, options.signal);
    try {
      const response = await this.#fetch(request.url, { ...request.init, signal: clock.signal });
      const bytes = new Uint8Array(await response.arrayBuffer());
      if (!response.ok)
        return lost(
          refusal(response.status, new TextDecoder().decode(bytes), request.url, this.baseUrl),
          response.headers,
        );
      if (response.status !== 204) read(bytes);
      return { status: response.status, headers: response.headers, bytes };
    } catch (cause) {
      if (options.signal?.aborted) throw aborted(options.signal);
      const why = clock.signal.aborted ? `no answer within ${limit} ms` : "the connection gave no answer";
      return new Lost(noAnswer(why, cause, request.url), true, undefined);
    } finally {
      clock.stop();
    }
  }

  /** The pause before try `tried + 1`. Its random part keeps callers that failed together from coming back together. */
  backoff(tried: number): number {
    return (1 - Math.random() / 2) * Math.min(this.backoffMs * 2 ** (tried - 1), LONGEST_PAUSE);
  }
}

/** A try that gave no success: whether another may follow, and after which pause. */
class Lost {
  constructor(
    readonly error: MailonceError,
    readonly again: boolean,
    readonly pauseMs: number | undefined,
  ) {}
}

function lost(error: MailonceError, headers: Headers): Lost {
  const seconds = Number(headers.get("retry-after") ?? Number.NaN);
  const told = Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : undefined;
  // "later" is for the caller to decide, save where the server only asks for a slower pace.
  const again = error.retry === "same" || error.status === 429;
  return new Lost(error, again && (told ?? 0) <= LONGEST_TOLD_PAUSE, told);
}

/** A signal that fires after `ms`, or with `outer`. */
export function deadline(ms: number, outer?: AbortSignal): { signal: AbortSignal; stop: () => void } {
  const control = new AbortController();
  const end = (): void => control.abort(outer?.reason);
  const timer = setTimeout(end, ms);
  if (outer?.aborted) end();
  outer?.addEventListener("abort", end, { once: true });
  const stop = (): void => {
    clearTimeout(timer);
    outer?.removeEventListener("abort", end);
  };
  return { signal: control.signal, stop };
}

/** Waits, unless `signal` ends it. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    const end = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    if (signal?.aborted) end();
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** A part of a path. */
export function at(id: string): string {
  if (typeof id !== "string" || id === "" || id === "." || id === "..") {
    throw new MailonceError({ code: "invalid_field", detail: "an id is missing", next: "Pass the id of the thing." });
  }
  return encodeURIComponent(id);
}

function search(query: object = {}): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return pairs.length === 0
    ? ""
    : "?" + new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
}

/** A name for one call of this process. It makes repeats of that call safe and nothing else, so no send gets one. */
export function minted(): string {
  const random = (): string =>
    Math.floor(Math.random() * 2 ** 48)
      .toString(36)
      .padStart(10, "0");
  return `sdk_${globalThis.crypto?.randomUUID?.() ?? `${Date.now().toString(36)}_${random()}${random()}`}`;
}

function environment(name: string): string | undefined {
  try {
    const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
    return process?.env?.[name] || undefined;
  } catch {
    return undefined; // an edge without an environment, or one that may not be read
  }
}
