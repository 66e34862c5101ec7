// The HTML of a mail in a frame without scripts, forms, links and origin. Nothing is fetched for it.
import { useMemo } from "preact/hooks";
import { safeMailDocument } from "./mail-html";

const HINT = "Styles and images from elsewhere are left out; links show where they lead.";

export function MailFrame({ html, label, hint = HINT }: { html: string; label: string; hint?: string }) {
  const document = useMemo(() => safeMailDocument(html), [html]);
  return (
    <div class="mail-frame">
      <iframe sandbox="" srcdoc={document} title={label} />
      <p class="hint">{hint}</p>
    </div>
  );
}
