// Draws the waterfall: one row for each thing that happened, each caller's repeat included.
import type { EmailDetail } from "../../api/types";
import { duration } from "../../components/Time";
import { rowsOf, scale, ticks, type Row } from "./waterfall-rows";

function Bar({ row, at }: { row: Row; at: (ms: number) => number }) {
  const left = at(row.from);
  const width = at(row.to) - left;
  return <span class={`email-bar ${row.tone} ${row.kind}`} style={{ left: `${Math.min(left, 98.5)}%`, width: `max(${width}%, 7px)` }} />;
}

/** How long something took, or when it happened after the accept. */
const when = (row: Row) => (row.to > row.from ? duration(row.to - row.from) : row.from > 0 ? `+${duration(row.from)}` : "start");

export function Waterfall({ email }: { email: EmailDetail }) {
  const rows = rowsOf(email);
  const at = scale(rows);
  const more = email.suppressed - email.suppressed_calls.length;
  return (
    <section class="card stack" aria-labelledby="waterfall-title">
      <h2 id="waterfall-title">What happened</h2>
      <div class="email-waterfall">
        <div class="email-axis" aria-hidden="true">
          {ticks(rows).map((tick) => <span key={tick} style={{ left: `${at(tick)}%` }}>{duration(tick)}</span>)}
        </div>
        <ol>
          {rows.map((row, index) => (
            <li key={index} class={row.kind}>
              <span class="email-row-label"><strong>{row.label}</strong> <span class="muted">{row.detail}</span></span>
              <span class="email-track" aria-hidden="true"><Bar row={row} at={at} /></span>
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
