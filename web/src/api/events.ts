// One event stream for the whole page. It resumes after the last event that was seen, and closes while the tab is hidden,
// because a browser allows six connections to a server and each tab would take one.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { get, withQuery } from "./client";
import type { MailEvent } from "./types";

export type StreamState = "closed" | "connecting" | "live" | "waiting";
export const streamState = signal<StreamState>("closed");
/** Counts how often the stream was opened again, or late, so that pages can load what they missed. */
const interruptions = signal(0);

type Handler = (event: MailEvent) => void;
interface Subscription {
  matches: (type: string) => boolean;
  handler: Handler;
}

const HIDDEN_GRACE_MS = 20_000;
const MAX_DELAY_MS = 30_000;
/** Pages load while the stream opens. When that took longer, events after their load may have been missed. */
const QUICK_OPEN_MS = 500;
const subscriptions = new Set<Subscription>();
let source: EventSource | null = null;
let lastCursor = "";
let failures = 0;
let opened = false;
let startedAt = 0;
let retryTimer = 0;
let hiddenTimer = 0;

/** True when `type` is in a list such as `email.sent,message.*`; an empty list matches everything. */
export function matcher(types: string): (type: string) => boolean {
  const parts = types.split(",").map((part) => part.trim()).filter(Boolean);
  if (parts.length === 0) return () => true;
  return (type) => parts.some((part) => (part.endsWith("*") ? type.startsWith(part.slice(0, -1)) : type === part));
}

/** Calls `handler` for each event whose type is in `types`. Returns the function that ends it. */
export function onEvents(types: string, handler: Handler): () => void {
  const subscription = { matches: matcher(types), handler };
  subscriptions.add(subscription);
  return () => subscriptions.delete(subscription);
}

/** The hook form of `onEvents`; the latest `handler` is called. */
export function useEvents(types: string, handler: Handler): void {
  const latest = useRef(handler);
  latest.current = handler;
  useEffect(() => onEvents(types, (event) => latest.current(event)), [types]);
}

/** How soon pages load again after an event, and how often at most. */
const REFRESH_DELAY_MS = 250;
const REFRESH_INTERVAL_MS = 1000;

export interface RefreshOptions {
  matches?: (event: MailEvent) => boolean;
  /** The time between two calls, at least. Longer for what costs the server more than a page of rows. */
  everyMs?: number;
}

/**
 * Calls `action` soon after matching events, once for several that arrive together. Also after the stream was
 * interrupted or opened late, because events may have been missed.
 */
export function useRefreshOn(types: string, action: () => void, { matches = () => true, everyMs = REFRESH_INTERVAL_MS }: RefreshOptions = {}): void {
  const timer = useRef(0);
  const last = useRef(0);
  const latest = useRef(action);
  latest.current = action;
  const refreshSoon = () => {
    if (timer.current) return;
    const run = () => {
      timer.current = 0;
      last.current = Date.now();
      latest.current();
    };
    timer.current = window.setTimeout(run, Math.max(REFRESH_DELAY_MS, last.current + everyMs - Date.now()));
  };
  useEvents(types, (event) => {
    if (matches(event)) refreshSoon();
  });
  useEffect(() => {
    const start = interruptions.value;
    const end = interruptions.subscribe((count) => count > start && refreshSoon());
    return () => {
      end();
      window.clearTimeout(timer.current);
      timer.current = 0;
    };
  }, []);
}

function receive(message: MessageEvent<string>): void {
  if (message.lastEventId) lastCursor = message.lastEventId;
  if (!message.data) return;
  const event = JSON.parse(message.data) as MailEvent;
  for (const { matches, handler } of [...subscriptions]) if (matches(event.type)) handler(event);
}

function connect(): void {
  window.clearTimeout(retryTimer);
  source?.close();
  streamState.value = "connecting";
  const stream = new EventSource(withQuery("/v1/events/stream", { after: lastCursor }));
  source = stream;
  stream.onopen = () => {
    failures = 0;
    if (opened || Date.now() - startedAt > QUICK_OPEN_MS) interruptions.value += 1;
    opened = true;
    streamState.value = "live";
  };
  stream.onmessage = receive;
  stream.onerror = () => {
    // The browser reconnects by itself after a lost connection, but gives up after an error status.
    streamState.value = "waiting";
    if (stream.readyState === EventSource.CLOSED) retryLater();
  };
}

function retryLater(): void {
  failures += 1;
  // A refused cursor (410 after a restore) never works again, so the third attempt starts with the next event.
  if (failures > 2) lastCursor = "";
  // A stream does not say why it was refused. If the session is over, this call finds out and shows how to sign in.
  void get("/v1/session").catch(() => undefined);
  retryTimer = window.setTimeout(connect, Math.min(MAX_DELAY_MS, 1000 * 2 ** failures) * (0.5 + Math.random() / 2));
}

function onVisibility(): void {
  window.clearTimeout(hiddenTimer);
  if (!document.hidden && !source) connect();
  if (document.hidden) hiddenTimer = window.setTimeout(closeStream, HIDDEN_GRACE_MS);
}

function closeStream(): void {
  window.clearTimeout(retryTimer);
  source?.close();
  source = null;
  streamState.value = "closed";
}

/** Starts the stream of the team that is signed in. A change of the team starts it anew. */
export function startEvents(): void {
  lastCursor = "";
  failures = 0;
  opened = false;
  startedAt = Date.now();
  document.addEventListener("visibilitychange", onVisibility);
  connect();
}

export function stopEvents(): void {
  document.removeEventListener("visibilitychange", onVisibility);
  window.clearTimeout(hiddenTimer);
  closeStream();
}
