// A secret that the server shows once.
import type { ComponentChildren } from "preact";
import { Code } from "./Code";
import { Dialog } from "./Dialog";

export function SecretDialog({ title, secret, label, onClose, children }: { title: string; secret: string; label: string; onClose: () => void; children?: ComponentChildren }) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">
        <p class="notice wait">Copy it now. It is not shown again.</p>
        <Code text={secret} label={label} wrap />
        {children}
      </div>
      <footer>
        <button type="button" class="button primary" onClick={onClose}>I have copied it</button>
      </footer>
    </Dialog>
  );
}
