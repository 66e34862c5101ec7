// A form in a dialog. Problems appear inside it, because a modal dialog covers the toasts.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { intention } from "../api/client";
import { asProblem, type ApiProblem } from "../api/problem";
import { Dialog } from "./Dialog";
import { Problem } from "./Problem";

export interface FormDialogProps {
  title: string;
  /** What the button says: the act itself. */
  action: string;
  onClose: () => void;
  /** Closes the dialog itself when it has succeeded. */
  submit: () => Promise<unknown>;
  danger?: boolean;
  disabled?: boolean;
  children: ComponentChildren;
}

/** One idempotency key for each body: pressing twice acts once, and a corrected form is a new intention. */
export function useIntentions(): (body: unknown) => string {
  const keys = useRef(new Map<string, string>());
  return (body) => {
    const text = JSON.stringify(body);
    const key = keys.current.get(text) ?? intention();
    keys.current.set(text, key);
    return key;
  };
}

/** Runs `submit` once at a time. */
export function useSubmit(submit: () => Promise<unknown>): { pending: boolean; problem: ApiProblem | null; onSubmit: (event: Event) => Promise<void> } {
  const [state, setState] = useState<{ pending: boolean; problem: ApiProblem | null }>({ pending: false, problem: null });
  const running = useRef(false);
  const mounted = useRef(true);
  useEffect(() => () => void (mounted.current = false), []);
  const onSubmit = async (event: Event) => {
    event.preventDefault();
    if (running.current) return;
    running.current = true;
    setState({ pending: true, problem: null });
    const problem = await submit().then(() => null, asProblem);
    running.current = false;
    if (mounted.current) setState({ pending: false, problem });
  };
  return { ...state, onSubmit };
}

export function SubmitButton({ form, pending, danger, disabled, children }: { form: string; pending: boolean; danger?: boolean; disabled?: boolean; children: ComponentChildren }) {
  return (
    <button type="submit" form={form} class={`button ${danger ? "danger" : "primary"}`} aria-busy={pending} disabled={disabled}>
      {pending && <span class="spinner" aria-hidden="true" />}
      {children}
    </button>
  );
}

export function FormDialog({ title, action, onClose, submit, danger, disabled, children }: FormDialogProps) {
  const id = useId();
  const { pending, problem, onSubmit } = useSubmit(submit);
  return (
    <Dialog title={title} onClose={onClose}>
      <form id={id} class="stack" onSubmit={(event) => void onSubmit(event)}>
        {children}
        {problem && <Problem problem={problem} />}
      </form>
      <footer>
        <button type="button" class="button" onClick={onClose}>Back</button>
        <SubmitButton form={id} pending={pending} danger={danger} disabled={disabled}>{action}</SubmitButton>
      </footer>
    </Dialog>
  );
}
