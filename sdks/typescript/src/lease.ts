// A lease that is renewed by itself while it is held.

import { pause } from "./call.js";
import { MailonceError } from "./error.js";
import type { Lease } from "./wire.js";

/** Retries of one renewal. The loop renews again anyway, and must notice in time that the lease is lost. */
export const RENEWAL = { maxRetries: 2 };

/** A lease in hand. `signal` fires when it is lost: stop working then, another agent may have the thread. */
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

  /** Stops renewing and gives it back. Giving back what was lost does nothing. */
  async release(): Promise<void> {
    await this.stop();
    if (!this.#lost.signal.aborted) await this.#release();
  }

  /** Stops renewing. */
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
        // No answer is no loss while the time that was granted lasts.
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
