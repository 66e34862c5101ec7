// The charts of the metrics page: what is drawn, and the PromQL of the same chart.
import type { Series } from "../../components/Chart";
import { total, type MetricLine } from "./openmetrics";

export interface ChartSpec {
  title: string;
  /** Counters are drawn as the increase since the sample before, gauges as they are. */
  kind: "counter" | "gauge";
  promql: string;
  series: { label: string; tone: Series["tone"]; read: (lines: MetricLine[]) => number }[];
}

const ATTEMPTS = "mailonce_handoff_attempts_total";
const attempts = (...results: string[]) => (lines: MetricLine[]) => results.reduce((sum, result) => sum + total(lines, ATTEMPTS, { result }), 0);

export const CHARTS: ChartSpec[] = [
  {
    title: "Sends", kind: "counter", promql: "sum(rate(mailonce_send_accepted_total[5m]))",
    series: [{ label: "accepted", tone: "accent", read: (lines) => total(lines, "mailonce_send_accepted_total") }],
  },
  {
    title: "Duplicates stopped", kind: "counter", promql: 'sum by (reason) (rate(mailonce_send_deduplicated_total[5m])) or label_replace(sum(rate(mailonce_key_mismatches_total[5m])), "reason", "mismatch", "", "")',
    series: [
      { label: "replayed by key", tone: "good", read: (lines) => total(lines, "mailonce_send_deduplicated_total") },
      { label: "key mismatches", tone: "bad", read: (lines) => total(lines, "mailonce_key_mismatches_total") },
    ],
  },
  {
    title: "Handoffs by outcome", kind: "counter", promql: "sum by (result) (rate(mailonce_handoff_attempts_total[5m]))",
    series: [
      { label: "accepted", tone: "good", read: attempts("accepted", "repeated") },
      { label: "captured by the sandbox", tone: "accent", read: (lines) => total(lines, "mailonce_handoff_captured_total") },
      { label: "deferred", tone: "busy", read: attempts("deferred", "concurrent") },
      { label: "refused", tone: "bad", read: attempts("refused", "fault", "mismatch") },
      { label: "unknown", tone: "wait", read: attempts("unknown") },
    ],
  },
  {
    title: "Queue depth", kind: "gauge", promql: "sum by (transport) (mailonce_handoff_queue_depth)",
    series: [{ label: "waiting", tone: "busy", read: (lines) => total(lines, "mailonce_handoff_queue_depth") }],
  },
  {
    title: "Unknown outcomes", kind: "gauge", promql: "max(mailonce_handoff_unknown)",
    series: [{ label: "unknown", tone: "wait", read: (lines) => total(lines, "mailonce_handoff_unknown") }],
  },
  {
    title: "Webhook attempts", kind: "counter", promql: "sum by (outcome) (rate(mailonce_notice_attempts_total[5m]))",
    series: [
      { label: "delivered", tone: "good", read: (lines) => total(lines, "mailonce_notice_attempts_total", { outcome: "delivered" }) },
      { label: "failed", tone: "bad", read: (lines) => total(lines, "mailonce_notice_attempts_total") - total(lines, "mailonce_notice_attempts_total", { outcome: "delivered" }) },
    ],
  },
];
