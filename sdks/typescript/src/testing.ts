// A server in memory for your tests: it accepts like mailonce, remembers what would have gone out, and can lose an answer
// after the commit. sdks/contract/behaviour.json holds it to what the real one does.

import { type ClientOptions } from "./call.js";
import { Desk } from "./double.js";
import { Refused } from "./double-words.js";
import { Mailonce } from "./index.js";
import type { CallTrace, Intent, Send } from "./wire.js";

/** A mail that would have gone out. */
export interface Gone extends Send {
  id: string;
  key: string | null;
  /** The message it answers. */
  reply_to_message?: string;
  /** What the caller calls the call that made it: `callId`, or the id that a framework gave its tool call. */
  call?: CallTrace;
}

/** What may arrive. */
export interface Arrival {
  to: string;
  from?: string;
  subject?: string;
  text?: string;
  /** A one-time code that was found in it. */
  code?: string;
}

export class Double {
  readonly #desk = new Desk();
  #lose = 0;
  #refuse = 0;

  /** Every mail that would have gone out, in order. */
  get mails(): readonly Gone[] {
    return this.#desk.mails;
  }

  /** How many calls came. */
  calls = 0;

  /** A client of this server. It makes no pauses between its tries, and 4 retries by default. */
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

  /** The next `count` calls are committed, and their answers are lost. */
  loseAnswers(count = 1): this {
    this.#lose = count;
    return this;
  }

  /** The next `count` calls are answered 503, before anything is committed. */
  refuse(count = 1): this {
    this.#refuse = count;
    return this;
  }

  /** Runs `work` as if its process died after the commit: no answer ever comes. Fails if `work` does not notice. */
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

  /** Lets a mail arrive; answers the message's id. */
  receive(mail: Arrival): string {
    return this.#desk.receive(mail);
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
      return this.#desk.act(init?.method ?? "GET", url, new Headers(init?.headers), body);
    } catch (error) {
      if (error instanceof Refused) return [error.status, error.problem];
      throw error;
    }
  }
}

/** Fails unless exactly one mail that fits went out. Without `like`, exactly one mail at all. */
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
  const said = double.mails.map(
    (mail) => `  ${mail.key ?? "no key"}: ${String(mail.subject)} to ${[mail.to].flat().join(", ")}`,
  );
  throw new Error(
    `${found.length} mails went out, wanted 1; ${double.calls} calls came, and these went out:\n${said.join("\n")}`,
  );
}

function answer(status: number, body: unknown): Response {
  return new Response(status === 204 ? null : JSON.stringify(body), {
    status,
    headers: { "content-type": "application/json" },
  });
}
