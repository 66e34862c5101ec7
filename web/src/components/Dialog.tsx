// Modal dialogs with the browser's own <dialog>, which keeps the focus inside and closes with Escape.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./Button";

/** Parts of a dialog in the layout are no header and footer elements: those would be landmarks of the page. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    element.current?.showModal();
    return () => void (opener instanceof HTMLElement && opener.isConnected && opener.focus());
  }, []);
  return (
    <dialog class="dialog" ref={element} aria-labelledby={id} onClose={onClose}>
      <div class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" class="button quiet small" aria-label="Close" onClick={() => element.current?.close()}>×</button>
      </div>
      {children}
    </dialog>
  );
}

export interface Question {
  title: string;
  body: ComponentChildren;
  /** What the button says: the act itself, such as "Cancel email". */
  action: string;
  danger?: boolean;
}

const asked = signal<{ question: Question; answer: (yes: boolean) => void } | null>(null);

/** Asks before an act that cannot be undone. */
export const confirm = (question: Question): Promise<boolean> =>
  new Promise((resolve) => {
    asked.value = { question, answer: resolve };
  });

/** Shows the question of `confirm()`; it is in the layout once. */
export function Confirm() {
  const open = asked.value;
  if (!open) return null;
  const answer = (yes: boolean) => {
    asked.value = null;
    open.answer(yes);
  };
  return (
    <Dialog title={open.question.title} onClose={() => answer(false)}>
      <div class="stack">{open.question.body}</div>
      <div class="dialog-foot">
        <Button onPress={() => answer(false)}>Back</Button>
        <Button kind={open.question.danger ? "danger" : "primary"} onPress={() => answer(true)}>{open.question.action}</Button>
      </div>
    </Dialog>
  );
}
