// A lease that is renewed while it is held.

import { pause } from "./call.js";
import { MailonceError } from "./error.js";
import type { Lease } from "./wire.js";

/** Retries of one renewal. Few, because the loop renews again and must notice a lost lease in time. */
export const RENEWAL = { maxRetries: 2 };

/** A lease that is renewed while it is held. Stop working when `signal` fires: the lease is lost, and another agent may have the thread. */
export class HeldLease implements Lease {
  readonly token: string;
  readonly fence: number;
  readonly holder: string;
  readonly #lost = new AbortController();
  readonly #over = new AbortController();
  readonly #renewing: Promise<void>;
  readonly #release: () => Promise<unknown>;
  #latest: Lease;

  constructor(
    lease: Lease,
    ttl: number,
    renew: () => Promise<Lease | null | undefined>,
    release: () => Promise<unknown>,
  ) {
    this.#latest = lease;
    this.token = lease.token;
    this.fence = lease.fence;
    this.holder = lease.holder;
    this.#release = release;
    this.#renewing = this.#renew(ttl * 1000, renew);
  }

  get expires_at(): string {
    return this.#latest.expires_at;
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Stops renewing and releases the lease. Releasing a lost lease does nothing. */
  async release(): Promise<void> {
    await this.stop();
    if (!this.#lost.signal.aborted) await this.#release();
  }

  /** Stops renewing and lets the lease expire. */
  async stop(): Promise<void> {
    this.#over.abort();
    await this.#renewing;
  }

  async #renew(ttl: number, renew: () => Promise<Lease | null | undefined>): Promise<void> {
    let until = Date.now() + ttl;
    while (await this.#idle(Math.min(ttl / 3, Math.max(until - Date.now(), 0)))) {
      const asked = Date.now();
      try {
        this.#latest = (await renew()) ?? this.#latest;
        until = asked + ttl;
      } catch (error) {
        // Without a response the lease still holds until it expires.
        const known = error instanceof MailonceError && error.retry !== "same";
        if (known || Date.now() >= until) return this.#lost.abort(error);
      }
    }
  }

  async #idle(ms: number): Promise<boolean> {
    try {
      await pause(ms, this.#over.signal);
      return true;
    } catch {
      return false; // it was given back
    }
  }
}
