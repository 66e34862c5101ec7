// What is known about a message besides its text: sender, authentication, warnings, links, attachments.
import type { Schema } from "../../api/types";
import { Facts } from "../../components/PageHead";
import { StateChip } from "../../components/StateChip";
import { bytes, Time } from "../../components/Time";
import { AUTH_TONES, AUTH_WORDS, FLAG_WORDS, INJECTION_WORDS, LINK_TONES, party, REPLY_WORDS, spaced, type Rendered } from "./words";

/** Long lists are cut, because a stranger decides how long they are. */
const MAX_LISTED = 50;

const Parties = ({ parties }: { parties: Schema["PartyBody"][] }) => <>{parties.slice(0, MAX_LISTED).map(party).join(", ")}{parties.length > MAX_LISTED && ` and ${parties.length - MAX_LISTED} more`}</>;

export function Warnings({ message, model }: { message: Rendered; model: Rendered | null }) {
  const injections = model?.injection_flags ?? [];
  const words = [
    ...(message.auth.verdict === "fail" ? [AUTH_WORDS.fail] : []),
    ...message.reply_target.flags.map((flag) => REPLY_WORDS[flag] ?? spaced(flag)),
    ...message.flags.map((flag) => FLAG_WORDS[flag] ?? spaced(flag)),
    ...(message.own_reason ? ["The team sent this mail itself, so it is not answered."] : []),
  ];
  return (
    <>
      {injections.length > 0 && (
        <div class="notice bad">
          <strong>Somebody talks to the model.</strong> The mail contains {injections.map(({ flag, count }) => `${INJECTION_WORDS[flag] ?? spaced(flag)}${count > 1 ? ` (${count} times)` : ""}`).join(", ")}.
        </div>
      )}
      {words.length > 0 && <ul class="notice wait">{words.map((word) => <li key={word}>{word}</li>)}</ul>}
    </>
  );
}

export function Sender({ message }: { message: Rendered }) {
  return (
    <section class="card stack" aria-label="Message">
      <Facts facts={[
        ["From", message.from ? party(message.from) : "no sender"],
        ["To", <Parties parties={message.to} />],
        ["Cc", message.cc.length > 0 ? <Parties parties={message.cc} /> : null],
        ["Reply to", message.reply_to.length > 0 ? <Parties parties={message.reply_to} /> : null],
        ["Arrived at", message.recipient],
        ["Received", <Time at={message.received_at} full />],
        ["Sent", message.date ? <Time at={message.date} full /> : null],
        ["Replies", message.replies.length > 0 ? <span class="row">{message.replies.map((id, index) => <a href={`/emails/${id}`} key={id}>reply {index + 1}</a>)}</span> : null],
        ["Automatic", message.automatic ? `${spaced(message.automatic.reason)}${message.automatic.overridable ? "" : ", certainly"}` : null],
        ["Labels", message.labels.length > 0 ? <span class="row">{message.labels.map((label) => <span class="chip plain free-text" key={label}>{label}</span>)}</span> : null],
        ["Folder", message.folder],
        ["Rules", message.rules.length > 0 ? message.rules.map(({ name }) => name).join(", ") : null],
        ["Message-ID", message.message_id ? <code>{message.message_id}</code> : null],
        ["Size", bytes(message.size)],
      ]} />
    </section>
  );
}

/** Nothing was checked for mail from a machine that the server trusts, such as this one in `dev`. */
const isTrusted = ({ verdict, spf, dkim, dmarc }: Rendered["auth"]) => verdict === "pass" && [spf, dkim, dmarc].every((result) => result === "none");

export function Authentication({ auth }: { auth: Rendered["auth"] }) {
  return (
    <section class="card stack" aria-labelledby="auth">
      <div class="row"><h2 id="auth">Sender authentication</h2><StateChip state={auth.verdict} tone={AUTH_TONES[auth.verdict]} /></div>
      <p>{isTrusted(auth) ? "The server trusts the machine that delivered it." : AUTH_WORDS[auth.verdict]}</p>
      <dl class="message-auth">
        {(["spf", "dkim", "dmarc"] as const).map((check) => <div key={check}><dt>{check.toUpperCase()}</dt><dd><StateChip state={auth[check]} tone={AUTH_TONES[auth[check]]} /></dd></div>)}
        {auth.domain && <div><dt>Domain</dt><dd>{auth.domain}</dd></div>}
      </dl>
    </section>
  );
}

export function Links({ links, revealed }: { links: Schema["LinkBody"][]; revealed: boolean }) {
  if (links.length === 0) return null;
  return (
    <section class="card stack" aria-labelledby="links">
      <h2 id="links">Links</h2>
      <p class="muted small-text">They are text here and never opened.</p>
      <ul class="stack">
        {links.slice(0, MAX_LISTED).map((link, index) => (
          <li key={index}>
            <p class="row"><StateChip state={link.verdict} tone={LINK_TONES[link.verdict]} /><strong>{link.host ?? "no host"}</strong>{link.purpose && <span class="muted">{spaced(link.purpose)}</span>}</p>
            {revealed && link.url && <p><code>{link.url.slice(0, 500)}</code></p>}
            <p class="muted small-text">{link.reasons.map(spaced).join(", ")}</p>
          </li>
        ))}
      </ul>
      {links.length > MAX_LISTED && <p class="muted">{links.length - MAX_LISTED} more links are not listed.</p>}
    </section>
  );
}

export function Attachments({ message }: { message: Rendered }) {
  if (message.attachments.length === 0) return null;
  return (
    <section class="card stack" aria-labelledby="attachments">
      <h2 id="attachments">Attachments</h2>
      <ul class="stack">
        {message.attachments.slice(0, MAX_LISTED).map(({ n, filename, content_type: type, size, inline }) => (
          <li key={n}>
            <a href={`/v1/messages/${message.id}/attachments/${n}`} download={filename ?? `attachment-${n}`}>{filename ?? "without a name"}</a>{" "}
            <span class="muted">{type}, {bytes(size)}{inline ? ", inside the text" : ""}</span>
          </li>
        ))}
      </ul>
      <p class="muted small-text">A stranger sent these files. mailonce did not open them.</p>
    </section>
  );
}
