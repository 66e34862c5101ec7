// Draws the waterfall: one row for each thing that happened, each caller's repeat included.
import { useState } from "preact/hooks";
import type { EmailDetail } from "../../api/types";
import { Button } from "../../components/Button";
import { duration } from "../../components/Time";
import { rowsOf, scale, ticks, type Row } from "./waterfall-rows";

function Bar({ row, at }: { row: Row; at: (ms: number) => number }) {
  const left = at(row.from);
  const width = at(row.to) - left;
  return <span class={`email-bar ${row.tone} ${row.kind}`} style={{ left: `min(${left}%, 100% - 7px)`, width: `max(${width}%, 7px)` }} />;
}

const MARK_PX = 7;
const MARK_STEP_PX = 9;

/** A mark for each call. Those that would lie on top of each other stand side by side. */
function Marks({ row, marks, at }: { row: Row; marks: number[]; at: (ms: number) => number }) {
  const left = (mark: number, index: number) => {
    const place = `max(${at(mark)}%, ${at(row.from)}% + ${index * MARK_STEP_PX}px)`;
    return `min(${place}, 100% - ${(marks.length - 1 - index) * MARK_STEP_PX + MARK_PX}px)`;
  };
  return <>{marks.map((mark, index) => <span key={index} class={`email-bar ${row.tone} ${row.kind}`} style={{ left: left(mark, index), width: `${MARK_PX}px` }} />)}</>;
}

/** How long something took, or when it happened after the accept. */
const when = (row: Row) => (row.to > row.from && !row.marks ? duration(row.to - row.from) : row.from > 0 ? `+${duration(row.from)}` : "start");

function Axis({ rows, at }: { rows: Row[]; at: (ms: number) => number }) {
  return (
    <div class="email-axis" aria-hidden="true">
      {ticks(rows).map((tick) => <span key={tick} style={{ left: `${at(tick)}%`, transform: `translateX(-${at(tick)}%)` }}>{tick === 0 ? "0" : duration(tick)}</span>)}
    </div>
  );
}

export function Waterfall({ email }: { email: EmailDetail }) {
  const [each, setEach] = useState(false);
  const now = Date.now();
  const rows = rowsOf(email, now, each);
  const at = scale(rows);
  const more = email.suppressed - email.suppressed_calls.length;
  const grouped = rows.some(({ kind, marks }) => kind === "duplicate" && marks && marks.length > 1);
  return (
    <section class="card stack" aria-labelledby="waterfall-title">
      <div class="row spread">
        <h2 id="waterfall-title">What happened</h2>
        {(grouped || each) && <Button kind="quiet" class="small" onPress={() => setEach(!each)}>{each ? "Group repeated calls" : "Show each call"}</Button>}
      </div>
      <div class="email-waterfall">
        <Axis rows={rows} at={at} />
        <ol>
          {rows.map((row, index) => (
            <li key={index} class={row.kind} title={row.title}>
              <span class="email-row-label"><strong>{row.label}</strong> <span class="muted">{row.detail}</span></span>
              <span class="email-track" aria-hidden="true">{row.marks ? <Marks row={row} marks={row.marks} at={at} /> : <Bar row={row} at={at} />}</span>
              <span class="email-row-time">{when(row)}</span>
            </li>
          ))}
        </ol>
      </div>
      <p class="hint">Times count from the accept, on a logarithmic axis.</p>
      {more > 0 && <p class="muted">{more.toLocaleString("en")} earlier duplicates are counted but not kept one by one.</p>}
    </section>
  );
}
