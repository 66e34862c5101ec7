// Stacked bars over time in SVG, with a table for screen readers.
import { absoluteTime } from "./Time";

export interface Series {
  label: string;
  /** One of the tones of the style sheet. */
  tone: "accent" | "good" | "wait" | "bad" | "busy" | "plain";
  values: number[];
}

export interface ChartProps {
  label: string;
  /** The time of each bar. */
  times: string[];
  series: Series[];
  height?: number;
}

const WIDTH = 600;

function Bar({ index, times, series, max, height, width }: { index: number; times: string[]; series: Series[]; max: number; height: number; width: number }) {
  const gap = Math.min(2, width / 4);
  let top = height;
  const parts = series.map(({ tone, values }) => {
    const size = ((values[index] ?? 0) / max) * height;
    top -= size;
    return <rect key={tone} class={`bar ${tone}`} x={index * width} y={top} width={Math.max(1, width - gap)} height={size} rx={1} />;
  });
  const words = series.map(({ label, values }) => `${label}: ${values[index] ?? 0}`).join(", ");
  return <g><title>{`${absoluteTime(times[index] ?? "")} · ${words}`}</title>{parts}<rect class="bar-hit" x={index * width} y={0} width={width} height={height} /></g>;
}

const SECOND_MS = 1000;
const DAY_MS = 86_400_000;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const clockWithSeconds = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-CA", { month: "short", day: "numeric" });

/** As much of a time as tells the labels of an axis apart. */
function axisLabel(at: string, spanMs: number): string {
  const time = new Date(at);
  if (spanMs > 2 * DAY_MS) return day.format(time);
  return (spanMs < 300 * SECOND_MS ? clockWithSeconds : clock).format(time);
}

/** At most so many labels at even distances, each where its span begins. On a phone, more would touch each other. */
const AXIS_LABELS = 4;
/** The part of the axis after which a label would touch "now". */
const LAST_LABEL = 0.75;

function TimeAxis({ times }: { times: string[] }) {
  const span = Date.parse(times.at(-1) ?? "") - Date.parse(times[0] ?? "");
  const step = Math.max(1, Math.ceil(times.length / AXIS_LABELS));
  const shown = times.map((time, index) => ({ time, index })).filter(({ index }) => index % step === 0 && index / times.length < LAST_LABEL);
  return (
    <div class="chart-axis" aria-hidden="true">
      {shown.map(({ time, index }) => <span key={time} style={{ left: `${(index / times.length) * 100}%` }}>{axisLabel(time, span)}</span>)}
      <span class="chart-now">now</span>
    </div>
  );
}

/** A round number that is at least `max`. */
function roundUp(max: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, max)));
  return [1, 1.2, 1.6, 2, 3, 4, 6, 8, 10].map((factor) => factor * power).find((value) => value >= max && Number.isInteger(value)) ?? 10 * power;
}

function ValueAxis({ max }: { max: number }) {
  const values = max % 2 === 0 ? [max, max / 2, 0] : [max, 0];
  return <div class="chart-values" aria-hidden="true">{values.map((value) => <span key={value}>{value.toLocaleString("en", { notation: "compact" })}</span>)}</div>;
}

export function Chart({ label, times, series, height = 96 }: ChartProps) {
  const totals = times.map((_, index) => series.reduce((sum, { values }) => sum + (values[index] ?? 0), 0));
  const largest = Math.max(0, ...totals);
  const max = roundUp(largest);
  const width = WIDTH / Math.max(1, times.length);
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0).toLocaleString("en");
  return (
    <figure class="chart">
      <figcaption>
        <strong>{label}</strong>
        {series.length > 1 && series.map(({ label: name, tone }) => <span class="legend" key={name}><i class={`swatch ${tone}`} />{name}</span>)}
      </figcaption>
      <div class="chart-plot">
        <ValueAxis max={max} />
        <svg viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" role="img" aria-label={`${label}. ${series.map((s) => `${s.label}: ${sum(s.values)}`).join(", ")}. At most ${largest} at a time.`}>
          {[0, height / 2].map((y) => <line key={y} class="chart-grid" x1={0} x2={WIDTH} y1={y} y2={y} />)}
          {times.map((time, index) => <Bar key={time} index={index} times={times} series={series} max={max} height={height} width={width} />)}
        </svg>
        <TimeAxis times={times} />
      </div>
    </figure>
  );
}
