// A button that shows that its action is running and cannot be pressed again meanwhile.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { reportProblem } from "./Toast";

export interface ButtonProps {
  children: ComponentChildren;
  /** Problems that it throws are shown as a toast. */
  onPress: () => void | Promise<unknown>;
  kind?: "plain" | "primary" | "danger" | "quiet";
  disabled?: boolean;
  title?: string;
  label?: string;
  pressed?: boolean;
  class?: string;
}

export function Button({ children, onPress, kind = "plain", disabled, title, label, pressed, class: extra = "" }: ButtonProps) {
  const [pending, setPending] = useState(false);
  const mounted = useRef(true);
  const running = useRef(false);
  useEffect(() => () => void (mounted.current = false), []);
  const press = async () => {
    if (running.current || disabled) return;
    running.current = true;
    setPending(true);
    try {
      await onPress();
    } catch (error) {
      reportProblem(error);
    }
    running.current = false;
    if (mounted.current) setPending(false);
  };
  return (
    <button type="button" class={`button ${kind} ${extra}`} onClick={press} disabled={disabled} aria-busy={pending} aria-label={label} aria-pressed={pressed} title={title}>
      {pending && <span class="spinner" aria-hidden="true" />}
      {children}
    </button>
  );
}
