// Text to copy: commands, bodies, ids.
import { useState } from "preact/hooks";
import { announce } from "./Toast";

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    announce(`Copied ${label}`);
    window.setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" class="button quiet small copy" onClick={() => void copy()} aria-label={`Copy ${label}`}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}

export function Code({ text, label, wrap = false }: { text: string; label: string; wrap?: boolean }) {
  return (
    <div class="code">
      <pre class={wrap ? "wrap" : ""} tabIndex={0} aria-label={label}>{text}</pre>
      <CopyButton text={text} label={label} />
    </div>
  );
}

/** A long id in one line, with a button to copy it. */
export function Id({ value, label = "the id", href }: { value: string; label?: string; href?: string }) {
  const code = <code>{value}</code>;
  return <span class="id">{href ? <a href={href}>{code}</a> : code}<CopyButton text={value} label={label} /></span>;
}
