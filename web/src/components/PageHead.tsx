// The heading of a page: one h1, which gets the focus after a navigation, a line below it, and the actions of the page.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";

export interface PageHeadProps {
  title: ComponentChildren;
  intro?: ComponentChildren;
  /** A link to the page above, such as `{ href: "/emails", label: "Emails" }`. */
  back?: { href: string; label: string };
  children?: ComponentChildren;
}

export function PageHead({ title, intro, back, children }: PageHeadProps) {
  // The router names the window after the page; the name of what the page shows follows when it is loaded.
  useEffect(() => {
    if (typeof title === "string") document.title = `${title} · mailonce`;
  }, [title]);
  return (
    <header class="page-head">
      <div>
        {back && <a class="back" href={back.href}>← {back.label}</a>}
        <h1 tabIndex={-1}>{title}</h1>
        {intro && <p class="muted">{intro}</p>}
      </div>
      {children && <div class="actions">{children}</div>}
    </header>
  );
}

/** Name and value pairs. */
export function Facts({ facts }: { facts: [ComponentChildren, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value], index) => value !== null && value !== undefined && value !== "" && (
        <div key={index}><dt>{name}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}
