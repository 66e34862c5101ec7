// A table whose rows open with Enter or a click. On a phone, columns with `wide` are hidden.
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { Button } from "./Button";
import { useRowKeys } from "./keys";

export interface Column<T> {
  head: string;
  cell: (row: T) => ComponentChildren;
  /** Hidden on narrow screens. */
  wide?: boolean;
  /** Numbers are aligned at their end. */
  number?: boolean;
}

export interface TableProps<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  keyOf: (row: T) => string;
  /** Makes the first cell a link that covers the row. */
  href?: (row: T) => string;
}

const classOf = <T,>({ wide, number }: Column<T>) => [wide ? "wide" : "", number ? "number" : ""].join(" ");

export function Table<T>({ label, rows, columns, keyOf, href }: TableProps<T>) {
  const body = useRef<HTMLTableSectionElement>(null);
  useRowKeys(body);
  return (
    <div class="table-scroll">
      <table class={href ? "table links" : "table"} aria-label={label}>
        <thead>
          <tr>{columns.map((column) => <th scope="col" class={classOf(column)} key={column.head}>{column.head}</th>)}</tr>
        </thead>
        <tbody ref={body}>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column, index) => (
                <td class={classOf(column)} key={column.head}>
                  {index === 0 && href ? <a href={href(row)} data-row="">{column.cell(row)}</a> : column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** How many empty parts of a filtered list are read before the person is asked. The server looks through 20,000 emails for each. */
export const FILTER_PATIENCE = 5;

/** Nothing matched so far, and older entries were not looked at yet. */
export const NothingYet = ({ more }: { more: () => Promise<void> }) => (
  <div class="empty" role="status">
    <h2>Nothing found so far</h2>
    <p>The latest entries were looked through, and older ones follow.</p>
    <Button onPress={more}>Look further back</Button>
  </div>
);

/** The end of a list with cursors. */
export function More({ done, loading, more }: { done: boolean; loading: boolean; more: () => Promise<void> }) {
  if (done) return null;
  return (
    <p class="more">
      <button type="button" class="button" disabled={loading} onClick={() => void more()}>{loading ? "Loading…" : "Show more"}</button>
    </p>
  );
}
