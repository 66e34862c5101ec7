// Threads, and the right to be the one who works on them.

import { at, type CallOptions, type Caller } from "./call.js";
import { HeldLease, RENEWAL } from "./lease.js";
import { each } from "./page.js";
import type { Lease, NewLease, Thread, ThreadPage, ThreadPatch } from "./wire.js";

export interface ThreadQuery {
  limit?: number;
  cursor?: string | null;
  inbox?: string;
  label?: string;
  handled?: boolean;
}

type Wish = Omit<NewLease, "token">;
type Work<T> = (lease: HeldLease) => Promise<T>;

export class Threads {
  readonly #call: Caller;
  constructor(call: Caller) {
    this.#call = call;
  }

  get(id: string, options?: CallOptions): Promise<Thread> {
    return this.#call.json({ method: "GET", path: `/v1/threads/${at(id)}` }, options);
  }

  list(query: ThreadQuery = {}, options?: CallOptions): Promise<ThreadPage> {
    return this.#call.json({ method: "GET", path: "/v1/threads", query }, options);
  }

  each(query: ThreadQuery = {}, options?: CallOptions): AsyncGenerator<Thread, void, undefined> {
    return each(query.cursor, (cursor) => this.list({ ...query, cursor }, options));
  }

  update(id: string, body: ThreadPatch, options?: CallOptions): Promise<Thread> {
    return this.#call.json({ method: "PATCH", path: `/v1/threads/${at(id)}`, body }, options);
  }

  /** Takes a thread and keeps it until `release`: the lease is renewed by itself. `leased` while another has it. */
  async lease(id: string, body: Wish = {}, options?: CallOptions): Promise<HeldLease> {
    const ttl = body.ttl_s ?? 60;
    const path = `/v1/threads/${at(id)}/lease`;
    const ask = (token?: string, renewal: CallOptions = {}): Promise<Lease> =>
      this.#call.json(
        { method: "POST", path, body: { ...body, ttl_s: ttl, token }, name: "mint" },
        { ...options, ...renewal },
      );
    const lease = await ask();
    return new HeldLease(
      lease,
      ttl,
      () => ask(lease.token, RENEWAL),
      () => this.#call.json({ method: "DELETE", path, body: { token: lease.token } }),
    );
  }

  /** Works on a thread as the only one, and gives it back however the work ends. */
  withLease<T>(id: string, work: Work<T>, options?: CallOptions): Promise<T>;
  withLease<T>(id: string, body: Wish, work: Work<T>, options?: CallOptions): Promise<T>;
  async withLease<T>(id: string, ...rest: [Work<T>, CallOptions?] | [Wish, Work<T>, CallOptions?]): Promise<T> {
    const [body, work, options] = wished(rest) ? rest : ([{}, ...rest] as const);
    const lease = await this.lease(id, body, options);
    let done: T;
    try {
      done = await work(lease);
    } catch (error) {
      // The work's own error is the one to tell; a lease that is not given back lapses by itself.
      await lease.release().catch(() => undefined);
      throw error;
    }
    await lease.release();
    return done;
  }
}

function wished<T>(
  rest: [Work<T>, CallOptions?] | [Wish, Work<T>, CallOptions?],
): rest is [Wish, Work<T>, CallOptions?] {
  return typeof rest[0] !== "function";
}
