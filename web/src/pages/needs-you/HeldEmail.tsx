// Exactly what will be sent: all addresses, attachments and both bodies, with the server's warnings first.
import type { Schema } from "../../api/types";
import { Facts } from "../../components/PageHead";
import { bytes, Time } from "../../components/Time";
import { MailFrame } from "../../components/MailFrame";

type Held = Schema["HeldEmailBody"];

export const Warnings = ({ warnings }: { warnings: string[] }) => warnings.length === 0 ? null : (
  <div class="notice wait">
    <strong>Look twice</strong>
    <ul class="needs-you-warnings">{warnings.map((warning) => <li key={warning}>{warning}</li>)}</ul>
  </div>
);

export function Addresses({ email }: { email: Held }) {
  const list = (addresses: string[] | undefined) => addresses && addresses.length > 0 ? addresses.join(", ") : null;
  return (
    <Facts facts={[
      ["From", email.from],
      ["To", list(email.to)],
      ["Cc", list(email.cc)],
      ["Bcc", list(email.bcc)],
      ["Reply-To", list(email.reply_to) ?? <span class="muted">the sender</span>],
      ["Leaves at", email.scheduled_at ? <Time at={email.scheduled_at} /> : null],
      ["Attachments", <Attachments email={email} />],
    ]} />
  );
}

function Attachments({ email }: { email: Held }) {
  if (email.attachments.length === 0) return <span class="muted">none</span>;
  return (
    <ul>
      {email.attachments.map(({ filename, content_type: type, size, sha256 }) => (
        <li key={sha256}>{filename ?? "without a name"} <span class="muted">{type ?? "type not declared"}, {bytes(size)}</span></li>
      ))}
    </ul>
  );
}

/** The text, and what a reader of the HTML sees. Nothing is cut, so that nobody approves what they did not see. */
export function Bodies({ email, frame = false }: { email: Held; frame?: boolean }) {
  const gone = email.text == null && email.html == null;
  if (gone) return <p class="muted">The content is no longer stored.</p>;
  return (
    <div class="needs-you-bodies">
      {email.text != null && (
        <section>
          <h3>Text</h3>
          <pre class="plain-text full">{email.text}</pre>
        </section>
      )}
      {email.html != null && (
        <section>
          <h3>{frame ? "HTML" : "HTML, as its reader sees it"}</h3>
          {frame ? <MailFrame html={email.html} label="HTML of the email" /> : <pre class="plain-text full">{email.html_as_text ?? ""}</pre>}
        </section>
      )}
    </div>
  );
}
