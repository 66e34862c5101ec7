// The call that made an email, to be copied and run again. It must never send a second email, so it is offered only when
// the server says that it would answer with the first one; otherwise the page says why there is no such call.
import { get, post } from "../../api/client";
import { asProblem, isMissing } from "../../api/problem";
import { sendBody, withoutEmpty } from "../../api/send-body";
import type { ApiCall } from "../../api/snippets";
import type { EmailDetail, Schema } from "../../api/types";
import { isUsableKey } from "../../components/KeyName";
import { may } from "../../session/session";
import { deriveKey } from "../keys/derive";

/** The call, or why it cannot be made again. */
export type SendingCall = { call: ApiCall; note?: string } | { why: string };

const REPLAYED = "It returns this email again and sends nothing, as long as its idempotency key is remembered.";

/** The key, when it belongs to this email now. Batch items, resent and erased emails have names that are no keys. */
async function boundKey(email: EmailDetail, signal: AbortSignal): Promise<Schema["KeyBody"] | null> {
  if (!email.key || !isUsableKey(email.key)) return null;
  try {
    const key = await get<Schema["KeyBody"]>(`/v1/keys/${encodeURIComponent(email.key)}`, {}, { signal });
    return key.bound_to === "email" && key.email === email.id ? key : null;
  } catch (error) {
    if (isMissing(asProblem(error))) return null;
    throw error;
  }
}

/** Whether the intent and the recipients alone lead to the key, so that the call needs no header. */
async function isDerivable(email: EmailDetail): Promise<boolean> {
  return Boolean(email.intent) && (await deriveKey(email.intent!, email.to).catch(() => null)) === email.key;
}

const isPresent = (value: unknown) => value !== null && value !== undefined && Object.keys(value).length > 0;

/** What the model said is not stored; the intent is, and it names the email. The tool has one recipient and plain content. */
function sendTool(email: EmailDetail): ApiCall["tool"] {
  const { intent, to, cc, bcc, reply_to: replyTo, headers, tags, metadata, subject, text, html } = email;
  if (!intent || to.length !== 1 || email.scheduled_at || [cc, bcc, replyTo, headers, tags, metadata].some(isPresent)) return undefined;
  const { type, entity, version, period } = intent;
  const wording = withoutEmpty({ text, html });
  return { name: "send_email", arguments: { to: to[0], type, entity, ...(version && version > 1 ? { version } : {}), ...(period ? { period } : {}), subject, ...wording, inbox: email.from.replace(/^.*<(.*)>$/, "$1") } };
}

/** Why the content of a send cannot be written down again. */
function missingPart(email: EmailDetail): string | null {
  if (email.template) return `The template ${email.template.name} wrote this email, and the values of its variables are not shown.`;
  if (email.attachments.length > 0) return "The bytes of its attachments are not shown, so the call would be refused as a different email.";
  if (email.text == null && email.html == null) return "The content is no longer stored.";
  return null;
}

function keylessReason(email: EmailDetail): string {
  if (!email.key) return "It has no idempotency key, so the same call would send the email again.";
  if (/\[\d+\]$/.test(email.key)) return "It was an item of a batch. Only the whole batch can be repeated, with the key of the batch.";
  return "Its idempotency key no longer belongs to it, so the same call would send a new email.";
}

async function resendCall(email: EmailDetail, first: string, signal: AbortSignal): Promise<SendingCall> {
  const original = await get<EmailDetail>(`/v1/emails/${first}`, {}, { signal });
  if (original.resent_as !== email.id) return { why: "It is a later version of an email that has another one now." };
  const tool = { name: "resend_email", arguments: { email: first, reason: "repeats an earlier call" } };
  return { call: { method: "POST", path: `/v1/emails/${first}/resend`, sdk: { name: "emails.resend", id: first }, tool }, note: "It returns this version again: an email is resent once." };
}

function replyCall(email: EmailDetail, message: string, key: string | null): SendingCall {
  if (!key) return { why: "It replies to or forwards a message, without a key. The message identifies it together with the number of the follow-up, which the email does not show." };
  if (/^fwd?:/i.test(email.subject)) return { why: "It forwards a message, and what was added to the message is not shown alone." };
  const body = withoutEmpty({ text: email.text, html: email.html });
  return { call: { method: "POST", path: `/v1/messages/${message}/reply`, body, key, sdk: { name: "messages.reply", id: message } }, note: REPLAYED };
}

/** Asks the server what the call would do. Looking needs no scope to send; then the binding of the key has to be enough. */
async function wouldReplay(email: EmailDetail, call: ApiCall, signal: AbortSignal): Promise<boolean> {
  if (!may("send")) return true;
  const { would, email: first } = await post<Schema["SimulationBody"]>("/v1/policy/simulate", call.body, { key: call.key, signal });
  return would === "replay" && first === email.id;
}

export async function findSendingCall(email: EmailDetail, signal: AbortSignal): Promise<SendingCall> {
  if (email.resend_of) return resendCall(email, email.resend_of, signal);
  const key = await boundKey(email, signal);
  if (email.reply_to_message) return replyCall(email, email.reply_to_message, key && key.key);
  if (!key) return { why: keylessReason(email) };
  const missing = missingPart(email);
  if (missing) return { why: missing };
  const derivable = await isDerivable(email);
  const call: ApiCall = { method: "POST", path: "/v1/emails", body: sendBody(email), key: derivable ? undefined : key.key, sdk: { name: "emails.send" }, tool: derivable ? sendTool(email) : undefined };
  if (await wouldReplay(email, call, signal)) return { call, note: REPLAYED };
  return { why: "The server would not take this call for the first one, such as after a relative time of sending." };
}
