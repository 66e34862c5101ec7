// A list of rows that are more than a table cell can hold. j and k move between them; links inside open them.
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { useRowKeys } from "./keys";

export interface ListProps<T> {
  label: string;
  items: T[];
  keyOf: (item: T) => string;
  /** The element that gets the focus needs `data-row`. */
  render: (item: T) => ComponentChildren;
}

export function List<T>({ label, items, keyOf, render }: ListProps<T>) {
  const list = useRef<HTMLUListElement>(null);
  useRowKeys(list);
  return (
    <ul class="list" ref={list} aria-label={label}>
      {items.map((item) => <li key={keyOf(item)}>{render(item)}</li>)}
    </ul>
  );
}
