// The calls behind an event: the one that made it, where the event itself has its content, and one that reads its object.
import type { ApiCall } from "../../api/snippets";
import type { MailEvent } from "../../api/types";
import { field } from "./event-words";

const READS: Record<string, (id: string) => ApiCall> = {
  email: (id) => ({ method: "GET", path: `/v1/emails/${id}`, sdk: { name: "emails.get", id }, tool: { name: "get_outcome", arguments: { email: id } } }),
  message: (id) => ({ method: "GET", path: `/v1/messages/${id}`, sdk: { name: "messages.get", id }, tool: { name: "read_message", arguments: { message: id } } }),
  thread: (id) => ({ method: "GET", path: `/v1/threads/${id}`, sdk: { name: "threads.get", id }, tool: { name: "find_messages", arguments: { thread: id } } }),
  artifact: (id) => ({ method: "GET", path: `/v1/artifacts/${id}`, sdk: { name: "artifacts.get", id } }),
  inbox: (id) => ({ method: "GET", path: `/v1/inboxes/${id}`, sdk: { name: "inboxes.get", id } }),
  key: (id) => ({ method: "GET", path: `/v1/keys/${encodeURIComponent(id)}` }),
  escalation: (id) => ({ method: "GET", path: `/v1/escalations/${id}` }),
  delivery: (id) => ({ method: "GET", path: `/v1/deliveries/${id}` }),
  endpoint: (id) => ({ method: "GET", path: `/v1/endpoints/${id}`, sdk: { name: "webhooks.get", id } }),
  claim: (id) => ({ method: "GET", path: `/v1/claims/${id}` }),
};

/** Reads the object; events about other objects are read from the log. */
export function readingCall(event: MailEvent): ApiCall {
  const { kind, id } = event.about;
  if (kind === "key") return READS["key"]!(field(event, "key") || id);
  return READS[kind]?.(id) ?? { method: "GET", path: `/v1/events?about=${encodeURIComponent(id)}` };
}

/** Events that a send made, so that its email has to be loaded to show the call. */
export const isFromSend = (event: MailEvent): boolean => /^email\.(accepted|held|duplicate)$/.test(event.type);

/** The call of an event whose content is in the event itself. */
export function makingCall(event: MailEvent): ApiCall | null {
  const { id } = event.about;
  switch (event.type) {
    case "artifact.consumed":
    case "artifact.applied": {
      const act = event.type === "artifact.consumed" ? "consume" : "applied";
      const body = { for: field(event, "for") };
      const tool = act === "consume" ? { name: "take_artifact", arguments: { type: field(event, "type"), message: field(event, "message"), ...body } } : undefined;
      return { method: "POST", path: `/v1/artifacts/${id}/${act}`, body, sdk: { name: `artifacts.${act}`, id }, tool };
    }
    case "thread.leased":
      return { method: "POST", path: `/v1/threads/${id}/lease`, body: { holder: field(event, "holder") }, sdk: { name: "threads.lease", id }, tool: { name: "claim_thread", arguments: { thread: id, holder: field(event, "holder") } } };
    case "key.forgotten":
      return { method: "DELETE", path: `/v1/keys/${encodeURIComponent(field(event, "key") || id)}` };
    case "email.cancelled":
      return { method: "POST", path: `/v1/emails/${id}/cancel`, sdk: { name: "emails.cancel", id } };
    default:
      return null;
  }
}
