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
    const size = ((values[index] ?? 0) / max) * (height - 4);
    top -= size;
    return <rect key={tone} class={`bar ${tone}`} x={index * width} y={top} width={Math.max(1, width - gap)} height={size} rx={1} />;
  });
  const words = series.map(({ label, values }) => `${label}: ${values[index] ?? 0}`).join(", ");
  return <g><title>{`${absoluteTime(times[index] ?? "")} · ${words}`}</title>{parts}<rect class="bar-hit" x={index * width} y={0} width={width} height={height} /></g>;
}

export function Chart({ label, times, series, height = 96 }: ChartProps) {
  const totals = times.map((_, index) => series.reduce((sum, { values }) => sum + (values[index] ?? 0), 0));
  const max = Math.max(1, ...totals);
  const width = WIDTH / Math.max(1, times.length);
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0).toLocaleString("en");
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" role="img" aria-label={`${label}. ${series.map((s) => `${s.label}: ${sum(s.values)}`).join(", ")}. At most ${max} at a time.`}>
        {times.map((time, index) => <Bar key={time} index={index} times={times} series={series} max={max} height={height} width={width} />)}
      </svg>
      <div class="chart-axis" aria-hidden="true">
        <span>{times[0] && absoluteTime(times[0])}</span>
        <span>now</span>
      </div>
      <figcaption>
        <strong>{label}</strong>
        {series.length > 1 && series.map(({ label: name, tone }) => <span class="legend" key={name}><i class={`swatch ${tone}`} />{name}</span>)}
        <span class="chart-max">max {max.toLocaleString("en")}</span>
      </figcaption>
    </figure>
  );
}
