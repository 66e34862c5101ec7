// Changes the subject and the content of a held email, with the differences, before it is sent.
import { useState } from "preact/hooks";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Diff } from "../../components/Diff";
import { CheckField, TextField } from "../../components/Field";
import { MailFrame } from "../../components/MailFrame";

type Held = Schema["HeldEmailBody"];
type Changes = Schema["EditBody"];

interface Draft {
  subject: string;
  text: string;
  html: string;
  /** Whether the part that was not changed is sent, too. */
  both: boolean;
}

/** An email without a text part is edited as the text of its HTML. */
const draftOf = (email: Held): Draft => ({ subject: email.subject, text: email.text ?? email.html_as_text ?? "", html: email.html ?? "", both: false });

/**
 * Only what changed is sent. A change of one part replaces both, and the other one is left out unless the person wants it:
 * its reader would still see what the change was meant to remove.
 */
function changesOf(email: Held, before: Draft, draft: Draft): Changes {
  const text = draft.text !== before.text;
  const html = draft.html !== before.html;
  return {
    ...(draft.subject !== before.subject ? { subject: draft.subject } : {}),
    ...(text || (html && draft.both && email.text != null) ? { text: draft.text } : {}),
    ...(html || (text && draft.both && email.html != null) ? { html: draft.html } : {}),
  };
}

/** Says which part is left out, and offers to keep it. */
function OtherPart({ email, changes, draft, set }: { email: Held; changes: Changes; draft: Draft; set: (part: Partial<Draft>) => void }) {
  const before = draftOf(email);
  const onlyText = draft.text !== before.text && draft.html === before.html && email.html != null;
  const onlyHtml = draft.html !== before.html && draft.text === before.text && email.text != null;
  if (!onlyText && !onlyHtml) return null;
  const other = onlyText ? "HTML" : "text";
  const left = (onlyText ? changes.html : changes.text) === undefined;
  return (
    <div class="notice wait stack">
      <p>{left ? `The ${other} part is left out, so that the two cannot say different things.` : `The ${other} part is sent as it was. Make sure that it says the same.`}</p>
      <CheckField label={`Send the unchanged ${other} part, too`} checked={draft.both} onChange={(both) => set({ both })} />
    </div>
  );
}

const asText = ({ subject, text, html }: Draft, email: Held) => `Subject: ${subject}\n\n${text}${email.html == null ? "" : `\n\nHTML:\n${html}`}`;

export function Edit({ email, save, back }: { email: Held; save: (changes: Changes) => Promise<void>; back: () => void }) {
  // What was on the page when the person began. The server refuses the change when the email is another one by then.
  const [before] = useState(() => draftOf(email));
  const [draft, setDraft] = useState(before);
  const set = (part: Partial<Draft>) => setDraft((old) => ({ ...old, ...part }));
  const changes = changesOf(email, before, draft);
  const changed = Object.keys(changes).length > 0;
  return (
    <div class="needs-you-edit">
      <section class="card stack">
        <h2>Edit</h2>
        <TextField label="Subject" value={draft.subject} onInput={(subject) => set({ subject })} />
        <TextField label="Text" value={draft.text} onInput={(text) => set({ text })} rows={14} />
        {email.html != null && <TextField label="HTML" value={draft.html} onInput={(html) => set({ html })} rows={10} />}
        <OtherPart email={email} changes={changes} draft={draft} set={set} />
        <p class="muted">The held email is cancelled, and this version is sent to the same recipients.</p>
        <div class="row">
          <Button kind="primary" disabled={!changed} onPress={() => save(changes)}>Send the edited email</Button>
          <Button onPress={back}>Back without changes</Button>
        </div>
      </section>
      <section class="card stack">
        <h2>What changes</h2>
        {changed ? <Diff before={asText(before, email)} after={asText(draft, email)} label="Changes" /> : <p class="muted">Nothing yet.</p>}
        {changes.html != null && <MailFrame html={changes.html} label="HTML after the change" />}
      </section>
    </div>
  );
}
