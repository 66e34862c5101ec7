// The events that the page shows: the latest ones of the log, then those that arrive. Pausing keeps the rows still.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, get } from "../../api/client";
import { useEvents } from "../../api/events";
import { asProblem, type ApiProblem } from "../../api/problem";
import type { MailEvent, Page } from "../../api/types";
import { announce } from "../../components/Toast";
import { learnNames } from "./names";

export const MAX_ROWS = 500;
const BACKLOG = 100;
const FLUSH_MS = 120;
const ANNOUNCE_MS = 5000;

/** The cursor of the newest event. The list starts with the oldest, but a stream begins with the cursor where it starts. */
async function latestCursor(signal: AbortSignal): Promise<string> {
  const stop = new AbortController();
  signal.addEventListener("abort", () => stop.abort());
  const response = await call("GET", "/v1/events/stream", undefined, { signal: stop.signal, headers: { accept: "text/event-stream" } });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader?.read(); part && !part.done && !/^id: .*\n/m.test(text); part = await reader?.read()) {
    text += part.value;
    if (/^id: .*\n/m.test(text)) break;
  }
  stop.abort();
  return /^id: (.*)$/m.exec(text)?.[1] ?? "";
}

async function backlog(signal: AbortSignal): Promise<MailEvent[]> {
  const [epoch, seq] = (await latestCursor(signal)).split("-");
  if (!Number(seq)) return [];
  const after = `${epoch}-${Math.max(0, Number(seq) - BACKLOG)}`;
  const { data } = await get<Page<MailEvent>>("/v1/events", { after, limit: BACKLOG }, { signal });
  return data.reverse();
}

/** Newest first, each event once. */
function merge(fresh: MailEvent[], old: MailEvent[]): MailEvent[] {
  const known = new Set(old.map(({ id }) => id));
  return [...fresh.filter(({ id }) => !known.has(id)), ...old].sort((a, b) => b.seq - a.seq).slice(0, MAX_ROWS);
}

export interface Recent {
  events: MailEvent[];
  /** Events that arrived while the list was paused. */
  waiting: number;
  paused: boolean;
  setPaused: (paused: boolean) => void;
  loading: boolean;
  problem: ApiProblem | null;
  clear: () => void;
}

export function useRecentEvents(): Recent {
  const [events, setEvents] = useState<MailEvent[]>([]);
  const [paused, setPausedState] = useState(false);
  const [waiting, setWaiting] = useState(0);
  const [load, setLoad] = useState<{ loading: boolean; problem: ApiProblem | null }>({ loading: true, problem: null });
  const queue = useRef<MailEvent[]>([]);
  const isPaused = useRef(false);
  const timer = useRef(0);
  const announcedAt = useRef(0);
  const flush = () => {
    timer.current = 0;
    if (isPaused.current) return setWaiting(queue.current.length);
    const fresh = queue.current.splice(0);
    if (fresh.length === 0) return undefined;
    learnNames(fresh);
    setEvents((old) => merge(fresh.reverse(), old));
    if (Date.now() - announcedAt.current > ANNOUNCE_MS) {
      announcedAt.current = Date.now();
      announce(fresh.length === 1 ? `New event: ${fresh[0]?.type}` : `${fresh.length} new events`);
    }
    return undefined;
  };
  useEvents("", (event) => {
    queue.current.push(event);
    if (queue.current.length > MAX_ROWS) queue.current.shift();
    timer.current ||= window.setTimeout(flush, FLUSH_MS);
  });
  useEffect(() => {
    const controller = new AbortController();
    backlog(controller.signal).then((past) => {
      learnNames(past);
      setEvents((old) => merge(past, old));
      setLoad({ loading: false, problem: null });
    }, (error: unknown) => controller.signal.aborted || setLoad({ loading: false, problem: asProblem(error) }));
    return () => {
      controller.abort();
      window.clearTimeout(timer.current);
    };
  }, []);
  const setPaused = (next: boolean) => {
    isPaused.current = next;
    setPausedState(next);
    setWaiting(0);
    if (!next) flush();
  };
  return { events, waiting, paused, setPaused, ...load, clear: () => setEvents([]) };
}
