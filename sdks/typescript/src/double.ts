// The in-memory fake server: idempotency keys, replies, codes and work, by the rules of the real server. It has no loop
// guards, no limits, no transports and no clock.

import { bareAddress, deriveKey } from "./key.js";
import {
  unsupported,
  type Body,
  type Bound,
  found,
  callTrace,
  matches,
  COMPARED_FIELDS,
  comparable,
  type Message,
  now,
  refused,
  receipt,
  CONTENT_FIELDS,
} from "./double-responses.js";
import { tool } from "./double-tools.js";
import type { Arrival, SentMail } from "./testing.js";
import type { CallTrace, Intent, Send } from "./wire.js";

export class FakeServer {
  readonly mails: SentMail[] = [];
  readonly #keys = new Map<string, Bound>();
  readonly #keyedResponses = new Map<string, [number, unknown]>();
  readonly #inboxes = new Map<string, Body>();
  readonly #messages: Message[] = [];
  #last = 0;

  act(method: string, url: URL, headers: Headers, body: unknown): [number, unknown] {
    if (url.pathname === "/mcp") return tool(this, headers, body as Body);
    const [, , what, id = "", verb = ""] = url.pathname.split("/").map(decodeURIComponent);
    const key = headers.get("idempotency-key");
    const fields = (body ?? {}) as Body;
    const call = callTrace(headers);
    if (method === "POST" && what === "emails" && id === "") return this.#send(fields, key, call);
    if (method === "POST" && what === "emails" && id === "batch") return this.#batch(body as Send[], key, call);
    if (method === "GET" && what === "emails") return this.#getEmails(id, url.searchParams);
    if (method === "POST" && what === "messages" && verb === "reply") return this.#reply(id, fields, call);
    if (method === "GET") return this.#read(what ?? "", id, verb, url.searchParams);
    const known = key === null ? undefined : this.#keyedResponses.get(key);
    const response = known ?? this.#keyedCall(method, what ?? "", id, verb, fields);
    if (key !== null) this.#keyedResponses.set(key, response);
    return response;
  }

  receive(mail: Arrival): string {
    const id = this.#id();
    const inbox = bareAddress(mail.to) ?? mail.to;
    if (!this.#inboxes.has(inbox)) this.#inboxes.set(inbox, this.#inbox(inbox));
    const number = 1 + this.#messages.filter((message) => message.inbox === inbox).length;
    const from = mail.from ?? "ann@example.com";
    const artifact =
      mail.code === undefined
        ? undefined
        : {
            id: this.#id(),
            type: "code",
            rev: 1,
            value: mail.code,
            masked: "******",
            confidence: 100,
            reasons: [],
            message: id,
            inbox_id: inbox,
            sender: from,
            found_at: now(),
            sender_authenticated: false,
          };
    const has = artifact === undefined ? [] : ["code"];
    const blank = {
      to: [],
      cc: [],
      reply_to: [],
      replies: [],
      flags: [],
      labels: [],
      rules: [],
      attachments: [],
      links: [],
      injection_flags: [],
      candidates: [],
    };
    const auth = { spf: "none", dkim: "none", dmarc: "none", verdict: "none" };
    const artifacts = artifact === undefined ? [] : [artifact];
    this.#messages.push({
      ...blank,
      id,
      inbox,
      inbox_id: inbox,
      thread_id: this.#id(),
      cursor: `1-${number}`,
      rev: 1,
      recipient: mail.to,
      subject: mail.subject ?? "",
      text: mail.text ?? "",
      preview: mail.text ?? "",
      from: { address: from },
      reply_target: { to: [from], flags: [] },
      received_at: now(),
      state: "unanswered",
      auth,
      read: false,
      size: 0,
      has,
      view: "min",
      artifacts,
    });
    return id;
  }

  #send(mail: Body, header: string | null, call?: CallTrace, child?: string): [number, unknown] {
    const intent = mail["intent"] as Intent | null | undefined;
    const to = [mail["to"] as string | string[]].flat();
    if (to.length === 0 || to.some((one) => bareAddress(one) === undefined))
      throw refused(422, "invalid_field", "`to` is no address", { field: "to" });
    const derived = intent ? deriveKey(intent, to) : null;
    const key = derived !== null && child !== undefined ? derived : (child ?? header ?? derived);
    const mode =
      (mail["on_mismatch"] as string | undefined) ?? (key !== null && key === derived ? "first_wins" : "reject");
    return this.#accept(key, mode, mail as unknown as Send, call);
  }

  #accept(key: string | null, mode: string, mail: Send, call?: CallTrace, repliesTo?: string): [number, unknown] {
    const bound = key === null ? undefined : this.#keys.get(key);
    if (bound === undefined) {
      const sent: SentMail = { ...mail, id: this.#id(), key };
      if (repliesTo !== undefined) sent.reply_to_message = repliesTo;
      if (call !== undefined) sent.call = call;
      this.mails.push(sent);
      const made: Bound = { mail: sent, suppressed: [] };
      if (key !== null) this.#keys.set(key, made);
      return [202, receipt(made, "first", false)];
    }
    const differs = COMPARED_FIELDS.filter(
      (field) => comparable(field, mail[field]) !== comparable(field, bound.mail[field]),
    );
    const other = differs.length > 0 && (mode === "reject" || differs.some((field) => !CONTENT_FIELDS.has(field)));
    this.#suppress(bound, other ? "mismatch" : differs.length > 0 ? "payload_differs" : "key_replay", call);
    if (other) {
      throw refused(
        422,
        "key_mismatch",
        `the key belongs to email ${bound.mail.id}, which differs in: ${differs.join(", ")}`,
        { differing_fields: differs, original_email: bound.mail.id, key },
      );
    }
    return [200, receipt(bound, "replayed", differs.length > 0)];
  }

  #suppress(bound: Bound, reason: Bound["suppressed"][number]["reason"], call?: CallTrace): void {
    bound.suppressed.push({ at: now(), channel: "http", reason, ...(call && { call }) });
  }

  #batch(mails: Send[], key: string | null, call?: CallTrace): [number, unknown] {
    const answers = mails.map((mail, n) =>
      this.#send(mail as unknown as Body, null, call, key === null ? undefined : `${key}[${n}]`),
    );
    return [
      answers.every(([status]) => status === 200) ? 200 : 202,
      { data: answers.map(([, body]) => body), errors: [] },
    ];
  }

  #getEmails(id: string, query: URLSearchParams): [number, unknown] {
    const calls = (mail: SentMail) => (mail.key === null ? undefined : this.#keys.get(mail.key)?.suppressed) ?? [];
    const shown = this.mails.map((mail) => ({
      ...mail,
      to: [mail.to].flat(),
      state: "sent",
      rev: 4,
      message_id: `<${mail.id}@mailonce.test>`,
      created_at: now(),
      version: 1,
      counts: { sent: 1 },
      suppressed: calls(mail).length,
      handoffs: [],
      evidence: [],
      timeline: [],
      suppressed_calls: calls(mail),
    }));
    if (id !== "")
      return [
        200,
        found(
          shown.find((mail) => mail.id === id),
          `email ${id}`,
        ),
      ];
    const key = query.get("key");
    return [200, { data: shown.filter((mail) => key === null || mail.key === key).reverse(), next_cursor: null }];
  }

  #reply(id: string, body: Body, call?: CallTrace): [number, unknown] {
    const message = found(
      this.#messages.find((one) => one.id === id),
      `message ${id}`,
    );
    const key = `reply ${id} ${Number(body["follow_up"] ?? 0)}`;
    const bound = this.#keys.get(key);
    if (bound !== undefined) {
      this.#suppress(bound, "already_answered", call);
      return [
        200,
        {
          ...receipt(bound, "replayed", comparable("text", body["text"]) !== comparable("text", bound.mail.text)),
          guard: "already_answered",
          thread_id: message["thread_id"],
        },
      ];
    }
    message["state"] = "answered";
    const to = (message["from"] as { address: string }).address;
    const [status, answer] = this.#accept(
      key,
      "first_wins",
      { from: message.inbox, to, subject: `Re: ${String(message["subject"])}`, text: body["text"] as string | null },
      call,
      id,
    );
    return [status, { ...(answer as Body), thread_id: message["thread_id"] }];
  }

  #read(what: string, id: string, verb: string, query: URLSearchParams): [number, unknown] {
    if (what === "messages" && verb === "")
      return [
        200,
        found(
          this.#messages.find((one) => one.id === id),
          `message ${id}`,
        ),
      ];
    if (what === "inboxes" && id === "") return [200, { data: [...this.#inboxes.values()], next_cursor: null }];
    const inbox = what === "inboxes" ? this.#findInbox(id) : undefined;
    if (inbox !== undefined && verb === "") return [200, inbox];
    if (inbox !== undefined && (verb === "messages" || verb === "wait")) {
      const cursor = Number(query.get("after")?.split("-")[1] ?? 0);
      const data = this.#messages.filter(
        (one) =>
          one.inbox === inbox["address"] && matches(one, query) && Number(String(one["cursor"]).split("-")[1]) > cursor,
      );
      if (verb === "messages") return [200, { data: query.has("after") ? data : data.reverse(), next_cursor: null }];
      const message = query.has("after") ? data[0] : data[data.length - 1];
      return message === undefined ? [204, undefined] : [200, { message, cursor: message["cursor"] }];
    }
    throw unsupported(`GET ${what}/${verb}`);
  }

  #keyedCall(method: string, what: string, id: string, verb: string, body: Body): [number, unknown] {
    if (method === "POST" && what === "inboxes" && id === "") return this.#create(body);
    if (method === "POST" && what === "inboxes" && verb === "consume") {
      const address = this.#findInbox(id)["address"];
      const from = (body["match"] as Body | undefined)?.["from"];
      const query = new URLSearchParams(typeof from === "string" ? { from, has: "code" } : { has: "code" });
      const codes = this.#messages
        .filter((one) => one.inbox === address && matches(one, query))
        .flatMap((one) => (one["artifacts"] as Body[]).slice(0, 1))
        .reverse();
      // A retry gets its own code, other callers the newest one that is not consumed.
      const own = codes.find((one) => one["consumed_for"] === body["for"]);
      const free = codes.find((one) => one["consumed_for"] === undefined);
      return this.#consume(found(own ?? free ?? codes[0], "code"), body);
    }
    if (method === "POST" && what === "artifacts" && verb === "consume") {
      return this.#consume(
        found(
          this.#messages.flatMap((one) => one["artifacts"] as Body[]).find((one) => one["id"] === id),
          `artifact ${id}`,
        ),
        body,
      );
    }
    if (method === "POST" && what === "inboxes" && verb === "next") {
      const address = this.#findInbox(id)["address"];
      const open = this.#messages
        .filter((one) => one.inbox === address && one["state"] === "unanswered")
        .slice(0, Number(body["limit"] ?? 1));
      for (const message of open) message["state"] = "leased";
      return [
        200,
        {
          data: open.map((message) => ({
            message,
            lease: { token: `lt_${message.id}`, fence: 1, holder: body["holder"] ?? "double", expires_at: now() },
          })),
        },
      ];
    }
    if (method === "POST" && what === "messages" && ["ack", "nack", "extend"].includes(verb)) {
      const message = found(
        this.#messages.find((one) => one.id === id),
        `message ${id}`,
      );
      if (verb !== "extend" && message["state"] === "leased")
        message["state"] = verb === "ack" ? "skipped" : "unanswered";
      return [200, { message, lease: { token: `lt_${id}`, fence: 1, holder: "double", expires_at: now() } }];
    }
    throw unsupported(`${method} ${what}/${verb}`);
  }

  #create(body: Body): [number, unknown] {
    const address =
      bareAddress(
        String(
          body["address"] ??
            `${String(body["username"] ?? `inbox-${this.#id()}`)}@${String(body["domain"] ?? "mailonce.test")}`,
        ),
      ) ?? "";
    const same = [...this.#inboxes.values()].find((one) => body["client_id"] && one["client_id"] === body["client_id"]);
    if (same !== undefined) return [200, same];
    if (this.#inboxes.has(address)) throw refused(409, "name_taken", `${address} is taken`);
    const inbox = { ...this.#inbox(address), ...body, address };
    this.#inboxes.set(address, inbox);
    return [201, inbox];
  }

  #consume(artifact: Body, body: Body): [number, unknown] {
    if (artifact["consumed_for"] !== undefined && artifact["consumed_for"] !== body["for"]) {
      throw refused(409, "already_consumed", `this code was taken for ${String(artifact["consumed_for"])}`, {
        consumed_for: artifact["consumed_for"],
      });
    }
    artifact["consumed_for"] = body["for"];
    artifact["consumed_at"] ??= now();
    return [200, { artifact }];
  }

  #inbox(address: string): Body {
    return {
      id: this.#id(),
      address,
      rev: 1,
      created_at: now(),
      catch_all: false,
      allowed_link_domains: [],
      caps: { per_window: 3, window_s: 300, per_thread_per_day: 20, per_recipient_per_day: 20 },
      reply_to_likely_automatic: false,
      mark_auto_submitted: false,
      metadata: {},
      message_count: 0,
      cursor: "1-0",
    };
  }

  #findInbox(id: string): Body {
    return found(
      [...this.#inboxes.values()].find((one) => one["id"] === id || one["address"] === id.toLowerCase()),
      `inbox ${id}`,
    );
  }

  #id(): string {
    this.#last += 1;
    return `00000000-0000-7000-8000-${String(this.#last).padStart(12, "0")}`;
  }
}
