// Messages, and the codes and links in them: reading, replying once, consuming once.

import { at, type CallOptions, type Caller, type Download } from "./call.js";
import { prefer, type SendOptions } from "./emails.js";
import type {
  Artifact,
  ArtifactPage,
  Consume,
  Forward,
  Reply,
  SendReceipt,
  Acknowledgement,
  AcknowledgementResult,
  RenderedMessage,
  ConsumedArtifact,
} from "./wire.js";

export class Messages {
  readonly #call: Caller;
  constructor(call: Caller) {
    this.#call = call;
  }

  /** `min` by default: what a model should see. */
  get(id: string, query: { view?: "min" | "plain" | "full" } = {}, options?: CallOptions): Promise<RenderedMessage> {
    return this.#call.json({ method: "GET", path: `/v1/messages/${at(id)}`, query }, options);
  }

  /** The message as received. Treat the bytes as hostile. */
  async raw(id: string, options?: CallOptions): Promise<Download> {
    return this.#call.download(`/v1/messages/${at(id)}/raw`, options);
  }

  /** The content of an attachment, by its number `n`. Treat the bytes as hostile. */
  async attachment(id: string, n: number, options?: CallOptions): Promise<Download> {
    return this.#call.download(`/v1/messages/${at(id)}/attachments/${at(String(n))}`, options);
  }

  artifacts(id: string, options?: CallOptions): Promise<ArtifactPage> {
    return this.#call.json({ method: "GET", path: `/v1/messages/${at(id)}/artifacts` }, options);
  }

  /** Replies once, even if a retry has another text. The message identifies the reply, so it needs no key. */
  reply(id: string, body: Reply, options: SendOptions = {}): Promise<SendReceipt> {
    return this.#call.json(
      { method: "POST", path: `/v1/messages/${at(id)}/reply`, body, hold: options.wait, headers: prefer(options.wait) },
      options,
    );
  }

  /** Forwards a message, once to the same recipients. */
  forward(id: string, body: Forward, options?: CallOptions): Promise<SendReceipt> {
    return this.#call.json({ method: "POST", path: `/v1/messages/${at(id)}/forward`, body }, options);
  }

  /** Marks a message from `next` as done. */
  ack(id: string, body: Acknowledgement, options?: CallOptions): Promise<AcknowledgementResult> {
    return this.#settle(id, "ack", body, options);
  }

  /** Returns a message from `next`; others may lease it after `delay_s`. */
  nack(id: string, body: Acknowledgement, options?: CallOptions): Promise<AcknowledgementResult> {
    return this.#settle(id, "nack", body, options);
  }

  /** Extends the lease of a message from `next`. */
  extend(id: string, body: Acknowledgement, options?: CallOptions): Promise<AcknowledgementResult> {
    return this.#settle(id, "extend", body, options);
  }

  #settle(id: string, verb: string, body: Acknowledgement, options?: CallOptions): Promise<AcknowledgementResult> {
    return this.#call.json({ method: "POST", path: `/v1/messages/${at(id)}/${verb}`, body, name: "mint" }, options);
  }
}

export class Artifacts {
  readonly #call: Caller;
  constructor(call: Caller) {
    this.#call = call;
  }

  get(id: string, options?: CallOptions): Promise<Artifact> {
    return this.#call.json({ method: "GET", path: `/v1/artifacts/${at(id)}` }, options);
  }

  /** Consumes a code or link once. The same `for` gets it again; another one fails with `already_consumed`. */
  async consume(id: string, body: Consume, options?: CallOptions): Promise<Artifact> {
    return (
      await this.#call.json<ConsumedArtifact>(
        { method: "POST", path: `/v1/artifacts/${at(id)}/consume`, body },
        options,
      )
    ).artifact;
  }

  /** Reports that the code or link was used. */
  async applied(id: string, body: { for: string }, options?: CallOptions): Promise<Artifact> {
    return (
      await this.#call.json<ConsumedArtifact>(
        { method: "POST", path: `/v1/artifacts/${at(id)}/applied`, body },
        options,
      )
    ).artifact;
  }
}
