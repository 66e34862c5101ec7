// An empty page says what it is for and what to do next.
import type { ComponentChildren } from "preact";

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Grey lines in the place of content that is loading. They appear after a moment, so that quick answers do not flicker. */
export function Loading({ lines = 3 }: { lines?: number }) {
  return (
    <div class="loading" role="status">
      <span class="visually-hidden">Loading</span>
      {Array.from({ length: lines }, (_, index) => <div class="loading-line" key={index} aria-hidden="true" />)}
    </div>
  );
}
