// Charts of a few metrics, sampled while the page is open, each with its PromQL.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import { usePolling } from "../../api/poll";
import { asProblem, type ApiProblem } from "../../api/problem";
import { Chart } from "../../components/Chart";
import { Code } from "../../components/Code";
import { Loading } from "../../components/Empty";
import { Problem } from "../../components/Problem";
import { CHARTS, type ChartSpec } from "./charts";
import { parseMetrics, type MetricLine } from "./openmetrics";
import { SetupPage } from "./SetupPage";

const EVERY_MS = 3000;
const KEPT = 60;

interface Sample {
  at: string;
  lines: MetricLine[];
}

/** Outlives the page, so that the charts are not empty after a visit elsewhere. */
const samples = signal<Sample[]>([]);

async function takeSample(): Promise<void> {
  const response = await call("GET", "/metrics", undefined, { headers: { accept: "text/plain" } });
  const lines = parseMetrics(await response.text());
  samples.value = [...samples.value, { at: new Date().toISOString(), lines }].slice(-KEPT - 1);
}

function valuesOf(read: (lines: MetricLine[]) => number, kind: ChartSpec["kind"], all: Sample[]): number[] {
  const values = all.map(({ lines }) => read(lines));
  if (kind === "gauge") return values.slice(1);
  // A counter that fell has started again with its process.
  return values.slice(1).map((value, index) => Math.max(0, value - (values[index] ?? 0)));
}

function MetricCard({ spec, all }: { spec: ChartSpec; all: Sample[] }) {
  const latest = all[all.length - 1];
  const now = latest ? spec.series.reduce((sum, { read }) => sum + read(latest.lines), 0) : 0;
  const padding = KEPT - (all.length - 1);
  const first = Date.parse(all[0]?.at ?? "");
  // Bars begin at the right end, so that the width of a bar does not change while samples come in.
  const times = [...Array.from({ length: padding }, (_, index) => new Date(first - (padding - index) * EVERY_MS).toISOString()), ...all.slice(1).map(({ at }) => at)];
  const series = spec.series.map(({ label, tone, read }) => ({ label, tone, values: [...new Array<number>(padding).fill(0), ...valuesOf(read, spec.kind, all)] }));
  return (
    <section class="card stack" aria-label={spec.title}>
      <div class="row spread">
        <h2>{spec.title}</h2>
        <span><strong class="setup-total">{now.toLocaleString("en")}</strong> <span class="muted small-text">{spec.kind === "counter" ? "in total" : "now"}</span></span>
      </div>
      <Chart label={spec.kind === "counter" ? `Per ${EVERY_MS / 1000} s` : "Value"} times={times} series={series} height={72} />
      <Code text={spec.promql} label={`the PromQL of ${spec.title}`} wrap />
    </section>
  );
}

export function Metrics() {
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const sample = () => takeSample().then(() => setProblem(null), (error: unknown) => setProblem(asProblem(error)));
  useEffect(() => void sample(), []);
  usePolling(EVERY_MS, () => void sample());
  const all = samples.value;
  return (
    <SetupPage section="metrics">
      {problem && <Problem problem={problem} retry={sample} />}
      {all.length === 0 && !problem && <Loading lines={6} />}
      {all.length > 0 && <div class="setup-two">{CHARTS.map((spec) => <MetricCard key={spec.title} spec={spec} all={all} />)}</div>}
      <p class="muted">Every {EVERY_MS / 1000} seconds, the last {(KEPT * EVERY_MS) / 60_000} minutes, of the node that answers. For history and several nodes, let Prometheus read <a href="/metrics" target="_blank" rel="noreferrer">/metrics</a>.</p>
    </SetupPage>
  );
}
