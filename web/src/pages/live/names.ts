// The names of objects, which most events and entries of the audit log do not carry: subjects, questions and addresses. Those
// of messages and questions are learned from events that do; others are loaded for the rows that are shown, slowly, so that a
// burst of events causes no burst of requests.
import { signal } from "@preact/signals";
import { get } from "../../api/client";
import type { Email, Escalation, MailEvent, Schema } from "../../api/types";
import { titleOf } from "../needs-you/reasons";

const MAX_NAMES = 2000;
/** Questions can be long, and a row is one line. */
const MAX_NAME_CHARS = 160;
const MAX_QUEUE = 60;
const MAX_RUNNING = 3;
const PAUSE_MS = 100;
const GATHER_MS = 150;

/** What is loaded by its id. */
type NamedKind = "email" | "escalation" | "inbox";

const LOADERS: Record<NamedKind, (id: string) => Promise<string>> = {
  email: async (id) => (await get<Email>(`/v1/emails/${id}`)).subject || "(no subject)",
  escalation: async (id) => titleOf(await get<Escalation>(`/v1/escalations/${id}`)),
  inbox: async (id) => (await get<Schema["InboxBody"]>(`/v1/inboxes/${id}`)).address,
};

export const names = signal<ReadonlyMap<string, string>>(new Map());
const asked = new Set<string>();
const queue: [kind: NamedKind, id: string][] = [];
let running = 0;

let fresh: [id: string, name: string][] = [];

/** Several names that arrive together are one change. */
function add(known: [id: string, name: string][]): void {
  const isScheduled = fresh.length > 0;
  const short = known.map(([id, name]): [string, string] => [id, name.length > MAX_NAME_CHARS ? `${name.slice(0, MAX_NAME_CHARS)}…` : name]);
  fresh.push(...short.filter(([id, name]) => id && name && names.peek().get(id) !== name));
  if (isScheduled || fresh.length === 0) return;
  window.setTimeout(() => {
    names.value = new Map([...names.peek(), ...fresh].slice(-MAX_NAMES));
    fresh = [];
  }, GATHER_MS);
}

/** What an escalation is about, as its event says it. */
export const askedAbout = (event: MailEvent): { question?: string; email?: string; message?: string; thread?: string } =>
  (event.about.kind === "escalation" && (event.data as { about?: object }).about) || {};

/** What a stop covers. `scope` is such as `inbox/ID`, as events and the audit log have it. */
export function stopName(scope: string): string {
  const [kind, id = ""] = scope.split("/", 2);
  if (kind === "inbox") return names.value.get(id) ?? "An inbox";
  if (kind === "api_key") return `API key …${id.slice(-8)}`;
  if (kind === "transport") return `Transport ${id}`;
  return kind === "team" ? "The whole team" : kind === "installation" ? "The whole installation" : scope;
}

/** Keeps what events say about messages, their threads, and questions. */
export function learnNames(events: MailEvent[]): void {
  add(events.flatMap((event) => {
    const { about, data } = event;
    const { question } = askedAbout(event);
    if (question) return [[about.id, question]] as [string, string][];
    const { subject, thread } = data as { subject?: string; thread?: string };
    return subject ? [[about.id, subject], [thread ?? "", subject]] as [string, string][] : [];
  }));
}

async function work(): Promise<void> {
  // The newest row first: it is what the reader looks at.
  const wanted = queue.pop();
  if (!wanted || running >= MAX_RUNNING) return void (wanted && queue.push(wanted));
  running += 1;
  const [kind, id] = wanted;
  const name = await LOADERS[kind](id).catch(() => "");
  add([[id, name]]);
  await new Promise((resolve) => window.setTimeout(resolve, PAUSE_MS));
  running -= 1;
  return work();
}

/** Asks for the name of an object once. Objects of other kinds have none that is loaded by the id. */
export function wantName(kind: string, id: string): void {
  if (!Object.hasOwn(LOADERS, kind) || asked.has(id) || names.peek().has(id)) return;
  asked.add(id);
  queue.push([kind as NamedKind, id]);
  // Forgotten requests can be asked again by a later event of the object.
  if (queue.length > MAX_QUEUE) asked.delete(queue.shift()?.[1] ?? "");
  void work();
}
