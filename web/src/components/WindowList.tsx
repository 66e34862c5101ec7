// A list that renders only the rows in the window, so that it stays quick with any number of rows. All rows have the
// same height. It asks for more rows before its end is reached.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useShortcuts } from "./keys";

export interface WindowListProps<T> {
  label: string;
  items: T[];
  keyOf: (item: T) => string;
  /** The element that gets the focus needs `data-row`. */
  render: (item: T) => ComponentChildren;
  rowHeight: number;
  /** Called when the end comes near. */
  onEnd: () => void;
}

const OVERSCAN = 8;

function visibleRange(list: HTMLElement | null, rowHeight: number): [first: number, last: number] {
  const top = list ? -list.getBoundingClientRect().top : 0;
  const first = Math.max(0, Math.floor(top / rowHeight) - OVERSCAN);
  return [first, Math.ceil((top + window.innerHeight) / rowHeight) + OVERSCAN];
}

function useRange(list: { current: HTMLElement | null }, rowHeight: number): [number, number] {
  const [range, setRange] = useState<[number, number]>([0, 30]);
  useEffect(() => {
    const update = () => setRange((old) => {
      const next = visibleRange(list.current, rowHeight);
      return next[0] === old[0] && next[1] === old[1] ? old : next;
    });
    update();
    window.addEventListener("scroll", update, { passive: true });
    window.addEventListener("resize", update);
    return () => {
      window.removeEventListener("scroll", update);
      window.removeEventListener("resize", update);
    };
  }, [rowHeight]);
  return range;
}

export function WindowList<T>({ label, items, keyOf, render, rowHeight, onEnd }: WindowListProps<T>) {
  const list = useRef<HTMLUListElement>(null);
  const [first, last] = useRange(list, rowHeight);
  const wanted = useRef<number | null>(null);
  useEffect(() => {
    if (last >= items.length) onEnd();
  }, [last, items.length]);
  const rowAt = (index: number) => list.current?.querySelector<HTMLElement>(`[data-index="${index}"] [data-row]`);
  // The row may not be rendered when the key is pressed; it gets the focus as soon as it is.
  useLayoutEffect(() => {
    if (wanted.current === null) return;
    const row = rowAt(wanted.current);
    if (row) wanted.current = null;
    row?.focus({ preventScroll: true });
  });
  const move = (step: number) => {
    const holder = document.activeElement?.closest<HTMLElement>("[data-index]");
    const index = Math.max(0, Math.min(items.length - 1, holder ? Number(holder.dataset["index"]) + step : 0));
    wanted.current = index;
    const row = rowAt(index);
    row?.focus({ preventScroll: true });
    if (row) wanted.current = null;
    scrollIntoWindow(list.current, index * rowHeight, rowHeight);
  };
  useShortcuts("List", [
    { keys: "j", does: "next row", run: () => move(1), repeats: true },
    { keys: "k", does: "previous row", run: () => move(-1), repeats: true },
  ]);
  return (
    <ul class="list window-list" ref={list} aria-label={label} style={{ height: `${items.length * rowHeight}px` }}>
      {items.slice(first, last).map((item, offset) => (
        <li key={keyOf(item)} data-index={first + offset} aria-setsize={-1} aria-posinset={first + offset + 1}
          style={{ top: `${(first + offset) * rowHeight}px`, height: `${rowHeight}px` }}>{render(item)}</li>
      ))}
    </ul>
  );
}

/** Keeps a margin for the bar at the top of narrow screens. */
function scrollIntoWindow(list: HTMLElement | null, offset: number, height: number): void {
  if (!list) return;
  const top = list.getBoundingClientRect().top + offset;
  const margin = 64;
  if (top < margin) window.scrollBy(0, top - margin);
  else if (top + height > window.innerHeight - 8) window.scrollBy(0, top + height - window.innerHeight + 8);
}
