// Messages, and the codes and links in them: reading, answering once, taking once.

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

  /** The bytes as they travelled. They are hostile. */
  async raw(id: string, options?: CallOptions): Promise<Download> {
    return this.#call.download(`/v1/messages/${at(id)}/raw`, options);
  }

  /** The bytes of an attachment, by its `n`. They are hostile. */
  async attachment(id: string, n: number, options?: CallOptions): Promise<Download> {
    return this.#call.download(`/v1/messages/${at(id)}/attachments/${at(String(n))}`, options);
  }

  artifacts(id: string, options?: CallOptions): Promise<ArtifactPage> {
    return this.#call.json({ method: "GET", path: `/v1/messages/${at(id)}/artifacts` }, options);
  }

  /** Answers a message once, whatever the words. The message is the name of the wish; it needs no key. */
  reply(id: string, body: Reply, options: SendOptions = {}): Promise<SendReceipt> {
    return this.#call.json(
      { method: "POST", path: `/v1/messages/${at(id)}/reply`, body, hold: options.wait, headers: prefer(options.wait) },
      options,
    );
  }

  /** Passes a message on, once to the same people. */
  forward(id: string, body: Forward, options?: CallOptions): Promise<SendReceipt> {
    return this.#call.json({ method: "POST", path: `/v1/messages/${at(id)}/forward`, body }, options);
  }

  /** Done with a message that `next` gave. */
  ack(id: string, body: Acknowledgement, options?: CallOptions): Promise<AcknowledgementResult> {
    return this.#settle(id, "ack", body, options);
  }

  /** Cannot do it; others may, after `delay_s`. */
  nack(id: string, body: Acknowledgement, options?: CallOptions): Promise<AcknowledgementResult> {
    return this.#settle(id, "nack", body, options);
  }

  /** Needs more time. */
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

  /** Takes it once. The same `for` gets it again, any other is refused: `already_consumed`. */
  async consume(id: string, body: Consume, options?: CallOptions): Promise<Artifact> {
    return (
      await this.#call.json<ConsumedArtifact>(
        { method: "POST", path: `/v1/artifacts/${at(id)}/consume`, body },
        options,
      )
    ).artifact;
  }

  /** Reports that it was used. */
  async applied(id: string, body: { for: string }, options?: CallOptions): Promise<Artifact> {
    return (
      await this.#call.json<ConsumedArtifact>(
        { method: "POST", path: `/v1/artifacts/${at(id)}/applied`, body },
        options,
      )
    ).artifact;
  }
}
