// The subjects of emails and messages, which most events do not carry. Those of messages are learned from events that do;
// those of emails are loaded for the rows that are shown, slowly, so that a burst of events causes no burst of requests.
import { signal } from "@preact/signals";
import { get } from "../../api/client";
import type { Email, MailEvent } from "../../api/types";

const MAX_NAMES = 2000;
const MAX_QUEUE = 60;
const MAX_RUNNING = 3;
const PAUSE_MS = 100;
const GATHER_MS = 150;

export const names = signal<ReadonlyMap<string, string>>(new Map());
const asked = new Set<string>();
const queue: string[] = [];
let running = 0;

let fresh: [id: string, name: string][] = [];

/** Several names that arrive together are one change. */
function add(known: [id: string, name: string][]): void {
  const isScheduled = fresh.length > 0;
  fresh.push(...known.filter(([id, name]) => id && name && names.peek().get(id) !== name));
  if (isScheduled || fresh.length === 0) return;
  window.setTimeout(() => {
    names.value = new Map([...names.peek(), ...fresh].slice(-MAX_NAMES));
    fresh = [];
  }, GATHER_MS);
}

/** Keeps what events say about messages and their threads. */
export function learnNames(events: MailEvent[]): void {
  add(events.flatMap(({ about, data }) => {
    const { subject, thread } = data as { subject?: string; thread?: string };
    return subject ? [[about.id, subject], [thread ?? "", subject]] as [string, string][] : [];
  }));
}

async function work(): Promise<void> {
  // The newest row first: it is what the reader looks at.
  const id = queue.pop();
  if (id === undefined || running >= MAX_RUNNING) return void (id && queue.push(id));
  running += 1;
  const email = await get<Email>(`/v1/emails/${id}`).catch(() => null);
  if (email) add([[id, email.subject || "(no subject)"]]);
  await new Promise((resolve) => window.setTimeout(resolve, PAUSE_MS));
  running -= 1;
  return work();
}

/** Asks for the subject of an email once. */
export function wantName(id: string): void {
  if (asked.has(id) || names.peek().has(id)) return;
  asked.add(id);
  queue.push(id);
  // Forgotten requests can be asked again by a later event of the email.
  if (queue.length > MAX_QUEUE) asked.delete(queue.shift() ?? "");
  void work();
}
