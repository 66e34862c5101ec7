// One call: retries the same bytes with the same idempotency key until there is a response, up to a number of tries.

import { aborted, MailonceError, noAnswer, refusal } from "./error.js";
import { checkKey } from "./key.js";

/** Configuration of the client. */
export interface ClientOptions {
  /** `MAILONCE_URL` by default, else `http://127.0.0.1:6245`. */
  baseUrl?: string;
  /** `MAILONCE_API_KEY` by default. */
  apiKey?: string;
  /**
   * How often a call is retried when it was not answered; 12 by default. With the default `backoffMs` that is 32 to 64
   * seconds of pauses, enough for a restart of the server.
   */
  maxRetries?: number;
  /** Timeout of one try; 10,000 by default. The time that the server is asked to wait is added. */
  timeoutMs?: number;
  /** The pause before the first retry, doubled for each further one up to 8 s; 250 by default. A random part of up to half is left out. */
  backoffMs?: number;
  fetch?: typeof fetch;
}

/** Options that every call takes. */
export interface CallOptions {
  /** Ends the call with the error `aborted`. The server may have received it; a retry with the same key tells. */
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
  maxRetries?: number | undefined;
  /** The idempotency key of this call. Calls other than sends get a random one, so that their retries are safe. */
  idempotencyKey?: string | undefined;
  /** The id that a framework gave this call. Only for correlation; it is not an idempotency key. */
  callId?: string | undefined;
}

export interface Call {
  method: string;
  path: string;
  query?: object | undefined;
  body?: unknown;
  headers?: Record<string, string | undefined>;
  /** Seconds that the server may wait before it responds. */
  hold?: number | undefined;
  /** `true` adds a random idempotency key if the caller passes none. Other calls are idempotent without one. */
  name?: "mint" | "nothing";
  /** False for a send without an intent or a key: a retry could send twice. */
  repeat?: boolean;
}

export interface Answer {
  status: number;
  headers: Headers;
  bytes: Uint8Array;
}

/** Bytes, with the content type that their sender declared. */
export interface Download {
  /** The declared content type; do not trust it. */
  contentType: string;
  content: Uint8Array;
}

const MAX_PAUSE = 8_000;
/** A longer Retry-After is returned to the caller as an error. */
const MAX_RETRY_AFTER = 60_000;
const VERSION = "0.1.0";
/** The API version that this SDK was built for. */
const API_VERSION = "2026-11-15";

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

  /** Makes a call and parses its response as JSON; `undefined` for 204. */
  async json<T>(call: Call, options: CallOptions = {}): Promise<T> {
    const read = (bytes: Uint8Array): unknown => JSON.parse(new TextDecoder().decode(bytes));
    const answer = await this.answer(call, options, read);
    return (answer.status === 204 ? undefined : read(answer.bytes)) as T;
  }

  /** Makes a call whose response is bytes. */
  async download(path: string, options: CallOptions = {}): Promise<Download> {
    const answer = await this.answer({ method: "GET", path, headers: { Accept: "*/*" } }, options);
    return {
      contentType: answer.headers.get("content-type") ?? "application/octet-stream",
      content: answer.bytes,
    };
  }

  /** Makes a call and retries it until there is a response. A success that `read` cannot parse was cut off, and is retried. */
  async answer(
    call: Call,
    options: CallOptions,
    read: (bytes: Uint8Array) => unknown = () => undefined,
  ): Promise<Answer> {
    const request = this.request(call, options);
    const tries = call.repeat === false ? 1 : 1 + (options.maxRetries ?? this.maxRetries);
    for (let tried = 1; ; tried++) {
      if (options.signal?.aborted) throw aborted(options.signal);
      const result = await this.#once(request, call, options, read);
      if (!(result instanceof FailedTry)) return result;
      if (tried >= tries || !result.mayRetry) throw result.error;
      const pauseMs = Math.max(result.retryAfterMs, this.backoff(tried));
      await pause(pauseMs, options.signal).catch(() => undefined); // the next round throws
    }
  }

  /** The request of a call. It is serialized once, so that every retry has the same bytes. */
  request(call: Call, options: CallOptions): { url: string; init: RequestInit } {
    const headers: Record<string, string> = {
      Authorization: `Bearer ${this.#apiKey}`,
      Accept: "application/json",
      "Mailonce-Client": `typescript/${VERSION}`,
      "Mailonce-Version": API_VERSION,
    };
    const key =
      options.idempotencyKey === undefined
        ? call.name === "mint"
          ? randomKey()
          : undefined
        : checkKey(options.idempotencyKey);
    if (key !== undefined) headers["Idempotency-Key"] = key;
    if (options.callId !== undefined) headers["Mailonce-Call-Id"] = encodeURIComponent(options.callId).slice(0, 256);
    for (const [name, value] of Object.entries(call.headers ?? {})) if (value !== undefined) headers[name] = value;
    // A redirect could change a POST, or send the API key to another host.
    const init: RequestInit = { method: call.method, headers, redirect: "manual" };
    if (call.body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(call.body);
    }
    return { url: this.baseUrl + call.path + search(call.query), init };
  }

  /** Opens a stream; one try. */
  async open(call: Call, signal: AbortSignal): Promise<Response> {
    const { url, init } = this.request(call, {});
    return this.#fetch(url, { ...init, signal });
  }

  async #once(
    request: { url: string; init: RequestInit },
    call: Call,
    options: CallOptions,
    read: (bytes: Uint8Array) => unknown,
  ): Promise<Answer | FailedTry> {
    const limit = (options.timeoutMs ?? this.timeoutMs) + (call.hold ?? 0) * 1000;
    const clock = deadline(limit, options.signal);
    try {
      const response = await this.#fetch(request.url, { ...request.init, signal: clock.signal });
      const bytes = new Uint8Array(await response.arrayBuffer());
      if (!response.ok)
        return failedTry(
          refusal(response.status, new TextDecoder().decode(bytes), request.url, this.baseUrl),
          response.headers,
        );
      if (response.status !== 204) read(bytes);
      return { status: response.status, headers: response.headers, bytes };
    } catch (cause) {
      if (options.signal?.aborted) throw aborted(options.signal);
      const why = clock.signal.aborted ? `no answer within ${limit} ms` : "the connection gave no answer";
      return new FailedTry(noAnswer(why, cause, request.url), true, 0);
    } finally {
      clock.stop();
    }
  }

  /** The pause before try `tried + 1`, with a random part so that callers that failed together do not retry together. */
  backoff(tried: number): number {
    return (1 - Math.random() / 2) * Math.min(this.backoffMs * 2 ** (tried - 1), MAX_PAUSE);
  }
}

/** A failed try: whether the call may be retried, and the shortest pause that the server accepts. */
class FailedTry {
  constructor(
    readonly error: MailonceError,
    readonly mayRetry: boolean,
    readonly retryAfterMs: number,
  ) {}
}

function failedTry(error: MailonceError, headers: Headers): FailedTry {
  const retryAfterMs = Number(headers.get("retry-after")) * 1000 || 0;
  // `later` is for the caller to decide, except for a rate limit.
  const mayRetry = error.retry === "same" || error.status === 429;
  return new FailedTry(error, mayRetry && retryAfterMs <= MAX_RETRY_AFTER, retryAfterMs);
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

/** Percent-encodes an id for a path. */
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

/** A random key for one call. It makes only the retries of that call safe, so no send gets one. */
export function randomKey(): string {
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
