// The HTML of a mail in a frame without scripts, forms, links and origin. Nothing is fetched for it.
import { useMemo } from "preact/hooks";
import { safeMailDocument } from "./mail-html";

const HINT = "Styles and images from elsewhere are left out; links show where they lead.";

/** Browsers with Trusted Types accept the document of a frame from a policy only. This is the only one of the dashboard. */
interface TrustedTypes {
  createPolicy: (name: string, rules: { createHTML: (html: string) => string }) => { createHTML: (html: string) => string };
}
const { trustedTypes } = globalThis as { trustedTypes?: TrustedTypes };
const policy = trustedTypes?.createPolicy("mailonce-mail", { createHTML: safeMailDocument }) ?? { createHTML: safeMailDocument };

export function MailFrame({ html, label, hint = HINT }: { html: string; label: string; hint?: string }) {
  const document = useMemo(() => policy.createHTML(html), [html]);
  return (
    <div class="mail-frame">
      <iframe sandbox="" srcdoc={document} title={label} />
      <p class="hint">{hint}</p>
    </div>
  );
}
