// How people who may decide are told of questions: by email, each with a link of their own.
import type { Schema } from "../../api/types";
import { TextField } from "../../components/Field";

type ApprovalEmailsBody = Schema["ApprovalEmailsBody"];

export function ApprovalEmails({ value, change }: { value: ApprovalEmailsBody | null; change: (value: ApprovalEmailsBody | null) => void }) {
  const quiet = value?.quiet_hours ?? { from: "", to: "" };
  const set = (part: Partial<ApprovalEmailsBody>) => {
    const next = { ...value, ...part };
    change(next.from || next.next_after || next.quiet_hours ? next : null);
  };
  const setQuiet = (from: string, to: string) => set({ quiet_hours: from || to ? { from, to } : null });
  return (
    <section class="card stack" aria-labelledby="approval-emails">
      <h2 id="approval-emails">Emails to deciders</h2>
      <p class="muted">Approvers and administrators with an address get each question with a link of their own. Without a sender, nobody is told by email; quiet hours hold for notification targets, too.</p>
      <div class="setup-two">
        <TextField label="Sender" value={value?.from ?? ""} placeholder="questions@example.com" onInput={(from) => set({ from: from.trim() || null })} />
        <TextField label="Tell the next person after" value={value?.next_after ?? ""} placeholder="All at once" hint="Such as 30m; 1 minute to 1 day." onInput={(after) => set({ next_after: after.trim() || null })} />
        <TextField label="Quiet hours from" value={quiet.from} placeholder="22:00" hint="In the team's time zone." onInput={(from) => setQuiet(from.trim(), quiet.to)} />
        <TextField label="Quiet hours until" value={quiet.to} placeholder="07:00" onInput={(to) => setQuiet(quiet.from, to.trim())} />
      </div>
    </section>
  );
}
