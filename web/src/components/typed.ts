// A text field of a filter, which asks the server when the person stops typing and not for every letter.
import { useEffect, useRef, useState } from "preact/hooks";

const TYPING_PAUSE_MS = 200;

/** What is in the field, and its handler. `commit` gets the text after a pause. */
export function useTyped(value: string, commit: (value: string) => void): [string, (value: string) => void] {
  const [typed, setTyped] = useState(value);
  const timer = useRef(0);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  return [typed, (next) => {
    setTyped(next);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => commit(next), TYPING_PAUSE_MS);
  }];
}
