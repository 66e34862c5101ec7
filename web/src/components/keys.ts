// Keyboard shortcuts. The help overlay lists those that are active.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Shortcut {
  /** A key such as `j`, or two in a row such as `g e`. */
  keys: string;
  does: string;
  run: () => void;
  /** Whether it acts again while the key is held down, as moving does. Decisions never do. */
  repeats?: boolean;
}

interface ShortcutGroup {
  title: string;
  everywhere: boolean;
  shortcuts: Shortcut[];
}

const SEQUENCE_MS = 1200;
/** Those of the page come first, so that they win over those of the layout. */
const groups = signal<ShortcutGroup[]>([]);
export const activeShortcuts = groups;
let first = "";
let firstAt = 0;

const isTyping = (target: EventTarget | null) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

function find(keys: string): Shortcut | undefined {
  return groups.value.flatMap(({ shortcuts }) => shortcuts).find((shortcut) => shortcut.keys === keys);
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return;
  // A modal dialog has its own keys.
  if (document.querySelector("dialog[open]")) return;
  const sequence = first && event.timeStamp - firstAt < SEQUENCE_MS ? find(`${first} ${event.key}`) : undefined;
  const shortcut = sequence ?? find(event.key);
  first = sequence ? "" : event.key;
  firstAt = event.timeStamp;
  if (!shortcut || (event.repeat && !shortcut.repeats)) return;
  event.preventDefault();
  shortcut.run();
}

export const startKeys = (): void => document.addEventListener("keydown", onKey);

/** Shortcuts that work while the component is shown. */
export function useShortcuts(title: string, shortcuts: Shortcut[], everywhere = false): void {
  const latest = useRef(shortcuts);
  latest.current = shortcuts;
  const names = shortcuts.map(({ keys, does }) => `${keys}=${does}`).join("\n");
  useEffect(() => {
    const stable = latest.current.map(({ keys, does, repeats }) => ({
      keys, does, repeats, run: () => latest.current.find((shortcut) => shortcut.keys === keys)?.run(),
    }));
    const group = { title, everywhere, shortcuts: stable };
    groups.value = [group, ...groups.value].sort((a, b) => Number(a.everywhere) - Number(b.everywhere));
    return () => void (groups.value = groups.value.filter((other) => other !== group));
  }, [title, names]);
}

/** j and k move the focus between the elements with `data-row` in a container. */
export function useRowKeys(container: { current: HTMLElement | null }): void {
  const move = (step: number) => {
    const rows = [...(container.current?.querySelectorAll<HTMLElement>("[data-row]") ?? [])];
    const at = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
    const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))];
    next?.focus();
    (next?.closest("li, tr") ?? next)?.scrollIntoView({ block: "nearest" });
  };
  useShortcuts("List", [
    { keys: "j", does: "next row", run: () => move(1), repeats: true },
    { keys: "k", does: "previous row", run: () => move(-1), repeats: true },
  ]);
}
