// Exactly what will be sent: all addresses, attachments and both bodies, with the server's warnings first.
import type { ComponentChildren } from "preact";
import type { Schema } from "../../api/types";
import { AttachmentLink } from "../../components/AttachmentLink";
import { Facts } from "../../components/PageHead";
import { Time } from "../../components/Time";
import { MailFrame } from "../../components/MailFrame";
import { visible } from "../../components/visible";

type Held = Schema["HeldEmailBody"];

export const Warnings = ({ warnings }: { warnings: string[] }) => warnings.length === 0 ? null : (
  <div class="notice wait">
    <strong>Look twice</strong>
    <ul class="needs-you-warnings">{warnings.map((warning) => <li key={warning}>{visible(warning)}</li>)}</ul>
  </div>
);

/** Lines of the approval text that the page shows elsewhere. */
const ELSEWHERE = new Set(["Subject", "Warning"]);
const LABELS: Record<string, string> = { Attached: "Attachment" };

/**
 * Addresses with their names, custom headers, attachments and the targets of links. Only the head of the approval text has
 * all of them; it ends with the first empty line.
 */
function headOf(approvalText: string): [name: string, value: string][] {
  const head = approvalText.split("\n\n", 1)[0] ?? "";
  return head.split("\n").flatMap((line): [string, string][] => {
    const [, name, value] = /^([A-Z][A-Za-z-]*):\s*(.*)$/.exec(line) ?? [];
    return name === undefined || value === undefined || ELSEWHERE.has(name) ? [] : [[LABELS[name] ?? name, value]];
  });
}

export function Addresses({ email }: { email: Held }) {
  const head = headOf(email.approval_text ?? "");
  const has = (name: string) => head.some(([other]) => other === name);
  const facts = head.length > 0 ? head : addressesOf(email);
  const attachments = facts.filter(([name]) => name === "Attachment");
  return (
    <Facts facts={[
      ...facts.map((fact): [string, ComponentChildren] => {
        const [name, value] = [fact[0], visible(fact[1])];
        const number = attachments.indexOf(fact);
        return [name, number < 0 ? value : <AttachmentLink email={email.id} number={number}>{value}</AttachmentLink>];
      }),
      ["Reply-To", has("Reply-To") ? null : <span class="muted">the sender</span>],
      ["Attachments", has("Attachment") ? null : <span class="muted">none</span>],
      ["Leaves at", email.scheduled_at ? <Time at={email.scheduled_at} /> : null],
    ]} />
  );
}

/** What is still known when the content is no longer stored. */
const addressesOf = (email: Held): [name: string, value: string][] => [
  ["From", email.from], ["To", email.to.join(", ")], ["Cc", (email.cc ?? []).join(", ")], ["Bcc", (email.bcc ?? []).join(", ")],
];

/** The text, and what a reader of the HTML sees. Nothing is cut, so that nobody approves what they did not see. */
export function Bodies({ email, frame = false }: { email: Held; frame?: boolean }) {
  const gone = email.text == null && email.html == null;
  if (gone) return <p class="muted">The content is no longer stored.</p>;
  return (
    <div class="needs-you-bodies">
      {email.text != null && (
        <section>
          <h3>Text</h3>
          <pre class="plain-text full">{visible(email.text)}</pre>
        </section>
      )}
      {email.html != null && (
        <section>
          <h3>{frame ? "HTML" : "HTML, as its reader sees it"}</h3>
          {frame ? <MailFrame html={email.html} label="HTML of the email" /> : <pre class="plain-text full">{visible(email.html_as_text ?? "")}</pre>}
        </section>
      )}
    </div>
  );
}
