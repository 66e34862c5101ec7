// Reads the OpenMetrics text of GET /metrics. Only what the charts need: names, labels, values.

export interface MetricLine {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

export function parseMetrics(text: string): MetricLine[] {
  const lines: MetricLine[] = [];
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (!found) continue;
    const labels = Object.fromEntries([...(found[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name ?? "", value ?? ""]));
    lines.push({ name: found[1] ?? "", labels, value: Number(found[3]) });
  }
  return lines;
}

/** The sum of a metric over all lines whose labels include `labels`. */
export const total = (lines: MetricLine[], name: string, labels: Record<string, string> = {}): number =>
  lines.filter((line) => line.name === name && Object.entries(labels).every(([label, value]) => line.labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0);
