// Events, as a list and as a stream that resumes where it was cut.

import { type Call, type CallOptions, type Caller, pause } from "./call.js";
import { MailonceError, noAnswer, refusal } from "./error.js";
import type { Event, EventPage } from "./wire.js";

export interface EventQuery {
  /** Return events after this cursor; `0` returns all stored events. */
  after?: string;
  /** Event types, such as `email.sent,message.*`. */
  type?: string;
  /** Id of the email, message or other resource that the event is about. */
  about?: string;
  inbox?: string;
}

/** Idle timeout. The server sends a heartbeat every 15 s. */
const IDLE_TIMEOUT_MS = 45_000;
const MAX_LINE_CHARS = 4_000_000;

export class Events {
  readonly #call: Caller;
  constructor(call: Caller) {
    this.#call = call;
  }

  list(query: EventQuery & { limit?: number } = {}, options?: CallOptions): Promise<EventPage> {
    return this.#call.json({ method: "GET", path: "/v1/events", query }, options);
  }

  /**
   * Streams every event from now on, or after `after`, once and in order, and reconnects by itself. Store `cursor` to
   * resume in another process. Ends when the loop is left, or with `signal`.
   */
  async *stream(
    query: EventQuery = {},
    options: { signal?: AbortSignal } = {},
  ): AsyncGenerator<Event, void, undefined> {
    let cursor = query.after;
    for (let failed = 0; ; failed++) {
      try {
        for await (const frame of this.#open({ ...query, after: cursor }, options.signal)) {
          cursor = frame.id ?? cursor;
          failed = 0;
          if (frame.data !== undefined) yield JSON.parse(frame.data) as Event;
        }
      } catch (error) {
        if (options.signal?.aborted) return;
        if (error instanceof MailonceError && error.retry !== "same" && error.status !== 429) throw error;
        if (failed >= this.#call.maxRetries) throw error;
      }
      try {
        await pause(this.#call.backoff(failed + 1), options.signal);
      } catch {
        return; // the caller ended it
      }
    }
  }

  async *#open(query: EventQuery, outer?: AbortSignal): AsyncGenerator<Frame, void, undefined> {
    const control = new AbortController();
    const end = (): void => control.abort(outer?.reason);
    if (outer?.aborted) end();
    outer?.addEventListener("abort", end, { once: true });
    let timer: ReturnType<typeof setTimeout> | undefined;
    const alive = (): void => {
      clearTimeout(timer);
      timer = setTimeout(end, IDLE_TIMEOUT_MS);
    };
    try {
      alive();
      const call: Call = { method: "GET", path: "/v1/events/stream", query, headers: { Accept: "text/event-stream" } };
      const response = await this.#call.open(call, control.signal).catch((cause: unknown) => {
        throw noAnswer("the stream could not be opened", cause, this.#call.baseUrl);
      });
      if (!response.ok) throw refusal(response.status, await response.text(), response.url, this.#call.baseUrl);
      if (response.body === null) throw noAnswer("the stream has no body");
      yield* frames(chunks(response.body, alive));
    } finally {
      clearTimeout(timer);
      outer?.removeEventListener("abort", end);
      control.abort();
    }
  }
}

interface Frame {
  id?: string;
  data?: string;
}

async function* chunks(body: ReadableStream<Uint8Array>, alive: () => void): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((cause: unknown) => {
        throw noAnswer("the stream was cut", cause);
      });
      if (done) return;
      alive();
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    reader.cancel().catch(() => undefined); // the stream has ended anyway
  }
}

/** Server-sent events. An incomplete frame is dropped, because the stream resumes from the cursor before it. */
async function* frames(texts: AsyncIterable<string>): AsyncGenerator<Frame, void, undefined> {
  let rest = "";
  let frame: Frame = {};
  for await (const text of texts) {
    rest += text;
    // A CR at the end may be the first half of a CRLF.
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    if (rest.length > MAX_LINE_CHARS) throw noAnswer("a line of the stream does not end");
    for (const line of lines) {
      if (line === "") {
        if (frame.id !== undefined || frame.data !== undefined) yield frame;
        frame = {};
        continue;
      }
      const [, name, value] = /^([^:]*):? ?([^]*)$/.exec(line) ?? [];
      if (name === "id") frame.id = value ?? "";
      if (name === "data") frame.data = frame.data === undefined ? (value ?? "") : `${frame.data}\n${value ?? ""}`;
    }
  }
}
