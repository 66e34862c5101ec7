// Downloads an attachment of an email that was sent or waits to be sent. Attachments count from 0.
import type { ComponentChildren } from "preact";

export const AttachmentLink = ({ email, number, children }: { email: string; number: number; children: ComponentChildren }) =>
  <a href={`/v1/emails/${email}/attachments/${number}`} download>{children}</a>;
