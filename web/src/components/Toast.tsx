// Short messages about what just happened. Screen readers hear them through the live regions.
import { signal } from "@preact/signals";
import { asProblem, type ProblemDocument } from "../api/problem";
import { ProblemBox } from "./Problem";

interface Toast {
  id: number;
  text: string;
  problem?: ProblemDocument;
}

const LIFETIME_MS = 6000;
const toasts = signal<Toast[]>([]);
const spoken = signal("");
let counter = 0;

const dismiss = (id: number) => (toasts.value = toasts.value.filter((toast) => toast.id !== id));

function show(toast: Omit<Toast, "id">): void {
  const id = ++counter;
  toasts.value = [...toasts.value.slice(-3), { ...toast, id }];
  // Problems stay until they are closed, because they say what to do.
  if (!toast.problem) window.setTimeout(() => dismiss(id), LIFETIME_MS);
}

/** Shows a message for some seconds and announces it. */
export const toast = (text: string): void => show({ text });

/** Announces a change to screen readers without showing anything. */
export function announce(text: string): void {
  spoken.value = text;
}

export function reportProblem(error: unknown): void {
  const { problem } = asProblem(error);
  show({ text: problem.title, problem });
}

export function Toasts() {
  return (
    <>
      <div class="visually-hidden" role="status" aria-live="polite">{spoken.value}</div>
      <div class="toasts" role="status" aria-live="polite" aria-label="Messages">
        {toasts.value.map((entry) => (
          <div class={entry.problem ? "toast bad" : "toast"} key={entry.id}>
            {entry.problem ? <ProblemBox problem={entry.problem} /> : <p>{entry.text}</p>}
            <button type="button" class="button quiet small" aria-label="Close message" onClick={() => dismiss(entry.id)}>×</button>
          </div>
        ))}
      </div>
    </>
  );
}
