// The HTML of a mail in a frame without scripts, forms, links and origin. Nothing is fetched for it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { mailHeight } from "./mail-height";
import { bodyOf, hasHidden, isDarkDocument, safeMailDocument } from "./mail-html";
import { isDark } from "./ThemeToggle";

const HINT = "Styles and images from elsewhere are left out; links show where they lead.";

/** Browsers with Trusted Types accept the document of a frame from a policy only. This is the only one of the dashboard. */
interface Policy {
  createHTML: (html: string, dark: boolean) => string;
}
const { trustedTypes } = globalThis as { trustedTypes?: { createPolicy: (name: string, rules: Policy) => Policy } };
const policy = trustedTypes?.createPolicy("mailonce-mail", { createHTML: safeMailDocument }) ?? { createHTML: safeMailDocument };

/** The width of an element, 0 until it is known. */
function useWidth(element: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return undefined;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.round(entry.contentRect.width)));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** Longer mails scroll in their frame. */
const MAX_HEIGHT_PX = 640;
const BORDER_PX = 2;

export function MailFrame({ html, label, hint = HINT }: { html: string; label: string; hint?: string }) {
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame);
  const document = useMemo(() => policy.createHTML(html, isDark.value), [html, isDark.value]);
  const text = String(document);
  const height = useMemo(() => Math.min(MAX_HEIGHT_PX, Math.ceil(mailHeight(bodyOf(text), width || MAX_HEIGHT_PX) + BORDER_PX)), [text, width]);
  return (
    <div class="mail-frame" ref={frame}>
      {hasHidden(text) && <p class="notice wait">Not all of the HTML is shown as usual: look for “[hidden in …]” or a note at its end. Browsers hide these parts, but other readers may show them.</p>}
      <iframe sandbox="" srcdoc={document} title={label} class={isDarkDocument(text) ? "dark" : ""} style={{ height: `${height}px` }} />
      <p class="hint">{hint}</p>
    </div>
  );
}
