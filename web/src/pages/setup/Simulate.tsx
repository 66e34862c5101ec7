// Asks what the policy would decide about an email, without sending it.
import { useId, useState } from "preact/hooks";
import { post } from "../../api/client";
import { useSender } from "../../api/sender";
import type { Schema } from "../../api/types";
import { TextField } from "../../components/Field";
import { SubmitButton, useSubmit } from "../../components/FormDialog";
import { PolicyTrace } from "../../components/PolicyTrace";
import { Problem, ProblemBox } from "../../components/Problem";
import { StateChip, type Tone } from "../../components/StateChip";
import { announce } from "../../components/Toast";
import { may } from "../../session/session";

type Simulation = Schema["SimulationBody"];

const WOULD: Record<Simulation["would"], { words: string; tone: Tone }> = {
  accept: { words: "It would be accepted and sent.", tone: "good" },
  replay: { words: "It would be answered with an earlier email; nothing would be sent.", tone: "busy" },
  hold: { words: "It would be accepted and held.", tone: "wait" },
  refuse: { words: "It would be refused.", tone: "bad" },
};

function Result({ simulation }: { simulation: Simulation }) {
  const { words, tone } = WOULD[simulation.would];
  return (
    <div class="stack">
      <p class="row"><StateChip state={simulation.would} tone={tone} /> <strong>{words}</strong> {simulation.email && <a href={`/emails/${simulation.email}`}>Open it</a>}</p>
      {simulation.problem && <div class="notice bad"><ProblemBox problem={simulation.problem as unknown as Parameters<typeof ProblemBox>[0]["problem"]} /></div>}
      <PolicyTrace steps={simulation.policy} />
    </div>
  );
}

const START = { from: null as string | null, to: "", subject: "", text: "", key: "" };

export function Simulate() {
  const id = useId();
  const inbox = useSender()?.address ?? "";
  const [draft, setDraft] = useState(START);
  const from = draft.from ?? inbox;
  const [simulation, setSimulation] = useState<Simulation | null>(null);
  const set = (change: Partial<typeof START>) => setDraft({ ...draft, ...change });
  const { pending, problem, onSubmit } = useSubmit(async () => {
    const { key, to, subject, text } = draft;
    const body = { from, subject, text, to: to.split(",").map((address) => address.trim()).filter(Boolean) };
    // The key is part of what is asked: it is looked up and stays free.
    const answer = await post<Simulation>("/v1/policy/simulate", body, key.trim() ? { key: key.trim() } : {});
    setSimulation(answer);
    announce(WOULD[answer.would].words);
  });
  return (
    <section class="card stack" aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>Simulate</h2>
      <p class="muted">What would happen to this email? Nothing is written, and no budget is charged.</p>
      <form id={id} class="stack" onSubmit={(event) => void onSubmit(event)}>
        <div class="setup-two">
          <TextField label="From" required value={from} onInput={(next) => set({ from: next })} />
          <TextField label="To" required value={draft.to} onInput={(to) => set({ to })} placeholder="ada@example.com" />
          <TextField label="Subject" value={draft.subject} onInput={(subject) => set({ subject })} placeholder="An offer" />
          <TextField label="Idempotency key" value={draft.key} onInput={(key) => set({ key })} placeholder="optional" />
        </div>
        <TextField label="Text" rows={3} required value={draft.text} onInput={(text) => set({ text })} />
      </form>
      <div class="row"><SubmitButton form={id} pending={pending} disabled={!may("send")}>Simulate</SubmitButton>{!may("send") && <span class="muted">Needs the scope send.</span>}</div>
      {problem && <Problem problem={problem} />}
      {simulation && <Result simulation={simulation} />}
    </section>
  );
}
