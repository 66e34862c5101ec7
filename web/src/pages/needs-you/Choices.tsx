// The three ways to settle an unknown outcome, each with what it means.
import { useState } from "preact/hooks";
import { Button } from "../../components/Button";
import { TextField } from "../../components/Field";
import { useShortcuts } from "../../components/keys";
import { may } from "../../session/session";

export interface Choice<As extends string> {
  as: As;
  label: string;
  /** When to choose it. */
  when: string;
  /** What happens then. */
  then: string;
  danger?: boolean;
}

export interface ChoicesProps<As extends string> {
  choices: Choice<As>[];
  settle: (as: As, reason: string) => Promise<void>;
  /** Claims keep no reason. */
  withReason?: boolean;
}

export function Choices<As extends string>({ choices, settle, withReason = true }: ChoicesProps<As>) {
  const [reason, setReason] = useState("");
  const allowed = may("approve", "admin");
  useShortcuts("Settle", choices.map((choice, index) => ({
    keys: String(index + 1), does: `focus “${choice.label}”`, run: () => document.querySelector<HTMLElement>(`[data-choice="${choice.as}"] button`)?.focus(),
  })));
  return (
    <section class="card stack" aria-labelledby="settle-title">
      <h2 id="settle-title">Settle it</h2>
      {withReason && <TextField label="How you know (optional)" hint="It stays in the timeline for whoever reads it later." value={reason} onInput={setReason} />}
      <div class="needs-you-choices">
        {choices.map((choice) => (
          <div key={choice.as} data-choice={choice.as}>
            <p><strong>{choice.when}</strong></p>
            <p class="muted">{choice.then}</p>
            <Button kind={choice.danger ? "danger" : "plain"} disabled={!allowed} onPress={() => settle(choice.as, reason.trim())}>{choice.label}</Button>
          </div>
        ))}
      </div>
    </section>
  );
}

export const EMAIL_CHOICES: Choice<"sent" | "resend" | "abandon">[] = [
  { as: "sent", label: "It arrived", when: "The recipient has it, or the next hop's log shows it.", then: "The email is marked as sent. Nothing more leaves." },
  { as: "resend", label: "Send it again", when: "You are sure it did not arrive, or a second copy does no harm.", then: "The same bytes leave once more. The recipient may get the email twice.", danger: true },
  { as: "abandon", label: "Give up", when: "It must not arrive twice, and it no longer matters whether it did.", then: "Nothing more leaves. The email stays recorded as abandoned." },
];

export const CLAIM_CHOICES: Choice<"done" | "retry" | "abandon">[] = [
  { as: "done", label: "It happened", when: "The other system shows the side effect.", then: "The claim is completed. Later callers do not repeat it." },
  { as: "retry", label: "Let it run again", when: "You are sure it did not happen, or a repeat does no harm.", then: "The next caller gets the claim. The side effect may happen twice.", danger: true },
  { as: "abandon", label: "Give up", when: "It must not happen twice, and it no longer matters whether it did.", then: "Nobody gets the claim any more." },
];
