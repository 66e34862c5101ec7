// The body of `POST /v1/emails` that made an email, as far as the email shows it.
import type { EmailDetail } from "./types";

const isEmpty = (value: unknown) =>
  value === null || value === undefined || value === "" || (typeof value === "object" && Object.keys(value).length === 0);

export const withoutEmpty = (members: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => !isEmpty(value)));

const one = (addresses: string[] | undefined) => (addresses?.length === 1 ? addresses[0] : addresses);

/** Attachments are left out, because an email shows their names and not their bytes. */
export const sendBody = (email: EmailDetail): Record<string, unknown> => withoutEmpty({
  from: email.from, to: one(email.to), cc: one(email.cc), bcc: one(email.bcc), reply_to: one(email.reply_to),
  scheduled_at: email.state === "scheduled" ? email.scheduled_at : undefined, subject: email.subject, text: email.text, html: email.html, headers: email.headers, metadata: email.metadata,
  tags: Object.entries(email.tags ?? {}).map(([name, value]) => ({ name, value })),
  intent: email.intent && withoutEmpty({ ...email.intent }),
});
