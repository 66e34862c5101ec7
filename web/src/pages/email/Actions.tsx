// What a person can do with an email: cancel it, or send its next version on purpose.
import { useState } from "preact/hooks";
import { intention, post } from "../../api/client";
import type { EmailDetail } from "../../api/types";
import { Button } from "../../components/Button";
import { confirm, Dialog } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { toast } from "../../components/Toast";
import { navigate } from "../../router";
import { may } from "../../session/session";

const CAN_CANCEL: EmailDetail["state"][] = ["scheduled", "queued", "held"];
const CAN_RESEND: EmailDetail["state"][] = ["sent", "delivered", "bounced", "complained", "failed", "abandoned", "cancelled"];

function ResendDialog({ email, close }: { email: EmailDetail; close: () => void }) {
  const [reason, setReason] = useState("");
  const [key] = useState(intention);
  const resend = async () => {
    const next = await post<{ id: string }>(`/v1/emails/${email.id}/resend`, { reason: reason.trim() || null }, { key });
    close();
    toast("The next version was accepted");
    navigate(`/emails/${next.id}`);
  };
  return (
    <Dialog title="Resend this email" onClose={close}>
      <div class="stack">
        <p>Version {email.version + 1} is sent to the same recipients as a new email. They get it again on purpose.</p>
        <TextField label="Reason" hint="It stays in the timeline." value={reason} onInput={setReason} />
      </div>
      <footer>
        <Button onPress={close}>Back</Button>
        <Button kind="primary" onPress={resend}>Resend</Button>
      </footer>
    </Dialog>
  );
}

export function Actions({ email, reload }: { email: EmailDetail; reload: () => Promise<void> }) {
  const [resending, setResending] = useState(false);
  const [cancelKey] = useState(intention);
  const allowed = may("send", "admin");
  const cancel = async () => {
    const yes = await confirm({ title: "Cancel this email?", body: <p>It will not be sent. Its idempotency key stays used: a retry gets the cancelled email.</p>, action: "Cancel email", danger: true });
    if (!yes) return;
    await post(`/v1/emails/${email.id}/cancel`, undefined, { key: cancelKey });
    toast("Cancelled");
    await reload();
  };
  return (
    <>
      {CAN_CANCEL.includes(email.state) && <Button kind="danger" disabled={!allowed} onPress={cancel}>Cancel email</Button>}
      {CAN_RESEND.includes(email.state) && !email.resent_as && <Button disabled={!allowed} onPress={() => setResending(true)}>Resend…</Button>}
      {resending && <ResendDialog email={email} close={() => setResending(false)} />}
    </>
  );
}
