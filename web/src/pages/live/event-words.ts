// What an event is about, in a few words, and where its object is.
import type { MailEvent } from "../../api/types";
import { shortKey } from "../../components/KeyName";
import type { Tone } from "../../components/StateChip";
import { askedAbout, names, stopName } from "./names";

export type EventTone = Tone | "accent";

const TONES: [pattern: RegExp, tone: EventTone][] = [
  [/^(email|delivery)\.duplicate$/, "accent"],
  [/\.(failed|bounced|complained|refused|disabled|skipped|orphaned|breaker_opened|stopped|row_parked)$/, "bad"],
  [/\.(held|unknown|deferred|opened|cap_reached|created|offered)$/, "wait"],
  [/\.(sent|delivered|answered|resolved|released|verified|completed|breaker_closed|consumed|applied|ended|resumed)$/, "good"],
  [/\.(accepted|leased|claimed|begun|received|rescheduled|rerouted)$/, "busy"],
];

export const toneOf = (type: string): EventTone => TONES.find(([pattern]) => pattern.test(type))?.[1] ?? "plain";

/** The members of `data` differ by type; all of them are strings, numbers or lists. */
export const field = (event: MailEvent, name: string): string => {
  const value = (event.data as Record<string, unknown>)[name];
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
};

const PLACES: Record<string, (event: MailEvent) => string | null> = {
  email: ({ about }) => `/emails/${about.id}`,
  handoff: (event) => (field(event, "email") ? `/emails/${field(event, "email")}` : null),
  message: ({ about }) => `/messages/${about.id}`,
  artifact: (event) => `/messages/${field(event, "message")}`,
  thread: ({ about }) => `/threads/${about.id}`,
  inbox: ({ about }) => `/inboxes/${about.id}`,
  escalation: ({ about }) => `/needs-you/${about.id}`,
  key: (event) => `/keys/${encodeURIComponent(field(event, "key") || event.about.id)}`,
  endpoint: ({ about }) => `/webhooks/${about.id}`,
  delivery: (event) => (field(event, "message") ? `/messages/${field(event, "message")}` : null),
  stop: () => "/stops",
  transport: () => "/stops",
  domain: () => "/setup",
};

/** The page of the object, or null when there is none. */
export const placeOf = (event: MailEvent): string | null => PLACES[event.about.kind]?.(event) ?? null;

const learned = (event: MailEvent) => {
  const { email = "", message = "", thread = "" } = askedAbout(event);
  return [event.about.id, field(event, "message"), field(event, "thread"), email, message, thread].map((id) => names.value.get(id)).find(Boolean);
};

/** Objects whose names are to be loaded for the row of an event. */
export function namedIn(event: MailEvent): [kind: string, id: string][] {
  const { question, email } = askedAbout(event);
  const wanted: [string, string][] = [["email", event.about.kind === "email" ? event.about.id : question ? "" : email ?? ""], ["inbox", event.about.kind === "stop" ? field(event, "inbox") : ""]];
  return wanted.filter(([, id]) => id);
}

/** The name of the object: what people would call it, or the end of its id, which differs more than its start. */
export const nameOf = (event: MailEvent): string =>
  field(event, "subject") || (event.about.kind === "stop" && stopName(field(event, "scope"))) || (event.about.kind !== "key" && learned(event)) || shortKey(field(event, "key")) || field(event, "address") || field(event, "question") || field(event, "name") || `${event.about.kind} …${event.about.id.slice(-8)}`;

const times = (count: number, one: string, many: string) => (count === 1 ? `1 ${one}` : `${count} ${many}`);

/** What the type and the name do not say. */
export const wordsOf = (event: MailEvent): string => {
  const key = shortKey(field(event, "key"));
  return [key && key !== nameOf(event) ? key : "", detailsOf(event)].filter(Boolean).join(" · ");
};

function detailsOf(event: MailEvent): string {
  if (event.type === "email.duplicate") return `${times(Number(field(event, "call_count") || 1), "call", "calls")} stopped, nothing was sent`;
  if (event.type === "message.received") return `from ${field(event, "from")}`;
  if (event.about.kind === "artifact") return [field(event, "type"), field(event, "masked"), field(event, "for") && `for ${field(event, "for")}`].filter(Boolean).join(" ");
  if (event.type === "thread.leased") return `by ${field(event, "holder")}, fence ${field(event, "fence")}`;
  const words = ["reason", "guard", "transport", "code", "from", "recipient", "state"].map((name) => field(event, name)).find(Boolean) ?? "";
  return event.type.endsWith(`.${words}`) || event.about.kind === "key" ? "" : words.replaceAll("_", " ");
}

/** Whether the text that the user typed is in the event. */
export function contains(event: MailEvent, text: string): boolean {
  const wanted = text.trim().toLowerCase();
  return !wanted || `${event.type} ${event.about.id} ${nameOf(event)} ${wordsOf(event)} ${JSON.stringify(event.data)}`.toLowerCase().includes(wanted);
}
