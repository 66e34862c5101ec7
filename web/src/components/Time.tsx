// Times: relative in the text and absolute in the title, or the other way round as the person chooses. On the pages of single
// objects both are in the text.
import { signal } from "@preact/signals";

const now = signal(Date.now());
window.setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 5000);

const STORAGE_KEY = "mailonce.times";

function stored(): boolean {
  try {
    return localStorage.getItem(STORAGE_KEY) === "absolute";
  } catch {
    return false;
  }
}

/** Whether lists show the time of day instead of how long ago it was. Titles are out of reach for touch and keyboards. */
export const absoluteTimes = signal(stored());

export function toggleTimes(): void {
  absoluteTimes.value = !absoluteTimes.value;
  try {
    localStorage.setItem(STORAGE_KEY, absoluteTimes.value ? "absolute" : "relative");
  } catch {
    // Where storage is blocked, the choice lasts until the page is loaded again.
  }
}

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [["day", 86_400_000], ["hour", 3_600_000], ["minute", 60_000], ["second", 1000]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });

/** Times that are farther away are shown as a date. */
const MAX_RELATIVE_MS = 30 * 86_400_000;

export function relativeTime(at: string, from: number = Date.now()): string {
  const distance = Date.parse(at) - from;
  const size = Math.abs(distance);
  if (Number.isNaN(distance)) return at;
  if (size < 5000) return distance > 0 ? "in a moment" : "just now";
  if (size > MAX_RELATIVE_MS) return at.slice(0, 10);
  const [unit, ms] = UNITS.find(([, length]) => size >= length) ?? ["second", 1000];
  return relative.format(Math.round(distance / ms), unit);
}

export const absoluteTime = (at: string): string =>
  new Intl.DateTimeFormat("en-CA", { dateStyle: "medium", timeStyle: "medium", hour12: false }).format(new Date(at));

const timeOfDay = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-CA", { month: "short", day: "numeric" });
const isToday = (at: Date) => at.toDateString() === new Date().toDateString();

/** Short enough for a column: `14:03:21` today, `Nov 18, 14:03` in the last month, a date before. */
export function shortTime(at: string): string {
  const time = new Date(at);
  if (isToday(time)) return timeOfDay.format(time);
  return Math.abs(time.getTime() - Date.now()) > MAX_RELATIVE_MS ? at.slice(0, 10) : `${day.format(time)}, ${timeOfDay.format(time).slice(0, 5)}`;
}

/** With `full`, the absolute time is in the text, too: titles are out of reach for touch and keyboards. */
export function Time({ at, full = false }: { at: string; full?: boolean }) {
  if (Number.isNaN(Date.parse(at))) return <span>{at}</span>;
  if (full && Math.abs(Date.parse(at) - Date.now()) > MAX_RELATIVE_MS) return <time dateTime={at} title={at}>{absoluteTime(at)}</time>;
  if (full) return <><RelativeTime at={at} /> <span class="muted">({absoluteTime(at)})</span></>;
  if (absoluteTimes.value) return <time dateTime={at} title={`${absoluteTime(at)} (${at})`}>{shortTime(at)}</time>;
  return <RelativeTime at={at} />;
}

const RelativeTime = ({ at }: { at: string }) =>
  <time dateTime={at} title={`${absoluteTime(at)} (${at})`}>{relativeTime(at, Math.max(now.value, Date.now()))}</time>;

/** `840 ms`, `3.2 s`, `4 min`, `2 h`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Number((ms / 1000).toFixed(1))} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} days`;
}

/** `1.2 MB`. */
export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  return size < 1_000_000 ? `${(size / 1000).toFixed(1)} KB` : `${(size / 1_000_000).toFixed(1)} MB`;
}
