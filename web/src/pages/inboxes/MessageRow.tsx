// One received message in a list.
import type { Schema } from "../../api/types";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { subjectOf, visible } from "../../components/visible";

export type Message = Schema["MessageBody"];

export const senderOf = ({ from }: Pick<Message, "from">): string => (from ? visible(from.name || from.address) : "no sender");

function Marks({ message }: { message: Message }) {
  return (
    <>
      {message.auth.verdict === "fail" && <span class="chip bad">sender not authentic</span>}
      {message.has.includes("code") && <span class="chip accent">code</span>}
      {message.has.includes("link") && <span class="chip accent">link</span>}
      {message.attachments.length > 0 && <span class="chip plain">{message.attachments.length === 1 ? "1 file" : `${message.attachments.length} files`}</span>}
    </>
  );
}

export function MessageRow({ message }: { message: Message }) {
  return (
    <div class="inboxes-message">
      <span class="inboxes-from" title={message.from?.address}>{senderOf(message)}</span>
      <a class="inboxes-subject" href={`/messages/${message.id}`} data-row="">{subjectOf(message)}</a>
      <span class="inboxes-preview">{visible(message.preview)}</span>
      <span class="inboxes-marks"><Marks message={message} /></span>
      <span class="inboxes-state"><StateChip state={message.state} /></span>
      <span class="inboxes-time"><Time at={message.received_at} /></span>
    </div>
  );
}
