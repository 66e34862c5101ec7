// Threads, and leases on them.

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

type LeaseOptions = Omit<NewLease, "token">;
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

  /** Leases a thread and renews the lease until `release`. Fails with `leased` while another worker holds it. */
  async lease(id: string, body: LeaseOptions = {}, options?: CallOptions): Promise<HeldLease> {
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

  /** Runs `work` while holding the lease of a thread, then releases it, even after an error. */
  withLease<T>(id: string, work: Work<T>, options?: CallOptions): Promise<T>;
  withLease<T>(id: string, body: LeaseOptions, work: Work<T>, options?: CallOptions): Promise<T>;
  async withLease<T>(id: string, ...rest: [Work<T>, CallOptions?] | [LeaseOptions, Work<T>, CallOptions?]): Promise<T> {
    const [body, work, options] = hasLeaseOptions(rest) ? rest : ([{}, ...rest] as const);
    const lease = await this.lease(id, body, options);
    let done: T;
    try {
      done = await work(lease);
    } catch (error) {
      // Report the work's own error. A lease that cannot be released expires.
      await lease.release().catch(() => undefined);
      throw error;
    }
    await lease.release();
    return done;
  }
}

function hasLeaseOptions<T>(
  rest: [Work<T>, CallOptions?] | [LeaseOptions, Work<T>, CallOptions?],
): rest is [LeaseOptions, Work<T>, CallOptions?] {
  return typeof rest[0] !== "function";
}
