// Asks for the reason of a rejection. The agent that asked can read it.
import { useState } from "preact/hooks";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { TextField } from "../../components/Field";

export interface RejectDialogProps {
  /** What is rejected: one subject, or how many emails. */
  what: string;
  reject: (reason: string) => Promise<void>;
  close: () => void;
}

export function RejectDialog({ what, reject, close }: RejectDialogProps) {
  const [reason, setReason] = useState("");
  return (
    <Dialog title={`Reject ${what}`} onClose={close}>
      <div class="stack">
        <p>The email is cancelled and never sent. If an agent sends it again, it is held again.</p>
        <TextField label="Reason" hint="Whoever reads the question later sees it, and so does the agent." value={reason} onInput={setReason} rows={3} />
      </div>
      <footer>
        <Button onPress={close}>Back</Button>
        <Button kind="danger" onPress={() => reject(reason.trim())}>Reject</Button>
      </footer>
    </Dialog>
  );
}
