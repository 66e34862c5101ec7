// An in-memory server for your tests. It accepts emails like mailonce, records what would have been sent, and can lose a
// response after the commit. sdks/contract/behaviour.json compares it with the real server.

import { type ClientOptions } from "./call.js";
import { FakeServer } from "./double.js";
import { Refused } from "./double-responses.js";
import { Mailonce } from "./index.js";
import type { CallTrace, Intent, Send } from "./wire.js";

/** An email that would have been sent. */
export interface SentMail extends Send {
  id: string;
  key: string | null;
  /** The message that it replies to. */
  reply_to_message?: string;
  /** The call that sent it: its `callId`, or the id that a framework gave its tool call. */
  call?: CallTrace;
}

/** A message for `receive`. */
export interface Arrival {
  to: string;
  from?: string;
  subject?: string;
  text?: string;
  /** A one-time code that it contains. */
  code?: string;
}

/** An in-memory server for tests. */
export class Double {
  readonly #server = new FakeServer();
  #lose = 0;
  #refuse = 0;

  /** All emails that would have been sent, in order. */
  get mails(): readonly SentMail[] {
    return this.#server.mails;
  }

  /** Number of calls received. */
  calls = 0;

  /** A client for this server, without pauses between tries and with 4 retries by default. */
  client(options: Omit<ClientOptions, "baseUrl" | "apiKey" | "fetch"> = {}): Mailonce {
    return new Mailonce({
      backoffMs: 0,
      maxRetries: 4,
      ...options,
      baseUrl: "http://double.mailonce.test",
      apiKey: "double",
      fetch: this.fetch,
    });
  }

  /** Commits the next `count` calls but loses their responses. */
  loseAnswers(count = 1): this {
    this.#lose = count;
    return this;
  }

  /** Answers the next `count` calls with 503, before anything is committed. */
  refuse(count = 1): this {
    this.#refuse = count;
    return this;
  }

  /** Runs `work` as if its process died after the commit: it never gets a response. Fails if `work` succeeds, because it ignored the missing responses. */
  async crash(work: () => unknown): Promise<void> {
    this.#lose = Infinity;
    try {
      await work();
    } catch {
      return; // as it should
    } finally {
      this.#lose = 0;
    }
    throw new Error("the work ended well although no call was answered");
  }

  /** Delivers a message and returns its id. */
  receive(mail: Arrival): string {
    return this.#server.receive(mail);
  }

  readonly fetch: typeof fetch = async (input, init) => {
    this.calls += 1;
    init?.signal?.throwIfAborted();
    if (this.#refuse > 0) {
      this.#refuse -= 1;
      return answer(503, {
        status: 503,
        code: "unavailable",
        detail: "the ledger could not answer",
        retry: "same",
        next: "Send the same call again with the same key.",
      });
    }
    const [status, body] = this.#act(new URL(String(input)), init);
    if (this.#lose > 0) {
      this.#lose -= 1;
      throw new TypeError("fetch failed: the answer was lost");
    }
    return answer(status, body);
  };

  #act(url: URL, init: RequestInit | undefined): [number, unknown] {
    try {
      const body: unknown = typeof init?.body === "string" ? JSON.parse(init.body) : undefined;
      return this.#server.act(init?.method ?? "GET", url, new Headers(init?.headers), body);
    } catch (error) {
      if (error instanceof Refused) return [error.status, error.problem];
      throw error;
    }
  }
}

/** Fails unless exactly one email that matches was sent. Without `like`, every email matches. */
export function expectSentOnce(
  double: Double,
  like: { key?: string; to?: string; intent?: Partial<Intent>; reply_to_message?: string } = {},
): void {
  const found = double.mails.filter(
    (mail) =>
      (like.key === undefined || mail.key === like.key) &&
      (like.reply_to_message === undefined || mail.reply_to_message === like.reply_to_message) &&
      (like.to === undefined || [mail.to].flat().includes(like.to)) &&
      Object.entries(like.intent ?? {}).every(
        ([name, value]) => (mail.intent as Record<string, unknown> | null | undefined)?.[name] === value,
      ),
  );
  if (found.length === 1) return;
  const lines = double.mails.map(
    (mail) => `  ${mail.key ?? "no key"}: ${String(mail.subject)} to ${[mail.to].flat().join(", ")}`,
  );
  throw new Error(
    `${found.length} mails went out, wanted 1; ${double.calls} calls came, and these went out:\n${lines.join("\n")}`,
  );
}

function answer(status: number, body: unknown): Response {
  return new Response(status === 204 ? null : JSON.stringify(body), {
    status,
    headers: { "content-type": "application/json" },
  });
}
