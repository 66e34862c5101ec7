// Transports: circuit breakers, test sends, and mail that waits for a transport that is gone.
import { useState } from "preact/hooks";
import { post } from "../../api/client";
import { isMissing } from "../../api/problem";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { SelectField, TextField } from "../../components/Field";
import { FormDialog, useIntentions } from "../../components/FormDialog";
import { NotServed } from "../../components/Problem";
import { StateChip, type Tone } from "../../components/StateChip";
import { Table } from "../../components/Table";
import { toast } from "../../components/Toast";
import { navigate } from "../../router";
import { may, sessionState } from "../../session/session";
import type { Names, Transports as TransportList } from "./scopes";

type Transport = Schema["TransportBody"];
type Orphaned = Schema["OrphanedTransportBody"];

const RECOVERY = { key: "idempotent retry", look_up: "look-up at the provider", none: "a person decides" };

const ownAddress = (): string => {
  const state = sessionState.value;
  return state.status === "in" ? state.session.person.address ?? "" : "";
};

/** The server calls the sandboxes of a server without transports by one name. */
const configuredName = ({ name, kind }: Transport): string => (kind === "sandbox" ? "sandbox" : name);

function TestDialog({ transport, names, close }: { transport: Transport; names: Names; close: () => void }) {
  const [from, setFrom] = useState(names.inboxes[0]?.[1] ?? "");
  const [to, setTo] = useState(ownAddress);
  const [missing, setMissing] = useState(false);
  const keyOf = useIntentions();
  const submit = async () => {
    const body = { from: from.trim(), to: to.trim() };
    try {
      const { id } = await post<{ id: string }>(`/v1/transports/${encodeURIComponent(configuredName(transport))}/test`, body, { key: keyOf(body) });
      toast("The test was accepted");
      navigate(`/emails/${id}`);
    } catch (error) {
      if (!isMissing(error)) throw error;
      setMissing(true);
    }
  };
  return (
    <FormDialog title={`Test ${transport.name}`} action="Send test" onClose={close} submit={submit}>
      <p>Sends an ordinary email by this transport only. Its page shows what the next hop answers.</p>
      <TextField label="From" type="email" required value={from} onInput={setFrom} placeholder="agent@example.com" />
      <TextField label="To" type="email" required value={to} onInput={setTo} placeholder="you@example.com" />
      {missing && <NotServed what="test sends" />}
    </FormDialog>
  );
}

function RerouteDialog({ orphaned, transports, close, done }: { orphaned: Orphaned; transports: Transport[]; close: () => void; done: () => void }) {
  const [to, setTo] = useState(transports[0]?.name ?? "");
  // `has_more` asks for another call with a new key.
  const [round, setRound] = useState(1);
  const keyOf = useIntentions();
  const submit = async () => {
    const body = { to };
    const result = await post<Schema["RerouteResultBody"]>(`/v1/transports/${encodeURIComponent(orphaned.name)}/reroute`, body, { key: keyOf({ ...body, round }) });
    toast(`${result.moved} moved, ${result.not_moved} stay because they are in doubt${result.has_more ? "; more remain" : ""}`);
    if (result.has_more) setRound(round + 1);
    else done();
  };
  return (
    <FormDialog title={`Move what waits for ${orphaned.name}`} action={round > 1 ? "Move more" : "Move"} onClose={close} submit={submit}>
      <p>{orphaned.waiting.toLocaleString("en")} handoffs of all teams wait. What may have left already is never moved.</p>
      <SelectField label="To" value={to} onChange={setTo} options={transports.map(({ name, kind }) => [name, `${name} (${kind})`])} />
    </FormDialog>
  );
}

function OrphanedList({ orphaned, move }: { orphaned: Orphaned[]; move: (orphaned: Orphaned) => void }) {
  return (
    <ul class="stack" aria-label="Missing transports">
      {orphaned.map((entry) => (
        <li class="notice wait row spread" key={entry.name}>
          <span><strong>{entry.name}</strong> is missing on every node: {entry.waiting.toLocaleString("en")} handoffs wait, {entry.unknown.toLocaleString("en")} unknown.</span>
          <Button disabled={!may("operator")} onPress={() => move(entry)}>Move…</Button>
        </li>
      ))}
    </ul>
  );
}

const BREAKERS: Record<Transport["breaker"], [label: string, tone: Tone, detail: string]> = {
  closed: ["working", "good", "circuit breaker closed"],
  half_open: ["trying again", "wait", "circuit breaker half open: one attempt at a time"],
  open: ["paused", "bad", "circuit breaker open"],
};

function Health({ transport: { breaker, breaker_reason: reason } }: { transport: Transport }) {
  const [label, tone, detail] = BREAKERS[breaker];
  return <><StateChip state={label} tone={tone} /><span class="sub">{reason ? `${detail}: ${reason}` : detail}</span></>;
}

interface TransportsProps {
  list: TransportList;
  names: Names;
  reload: () => void;
  /** False on a page whose own heading says it. */
  heading?: boolean;
}

export function Transports({ list, names, reload, heading = true }: TransportsProps) {
  const [testing, setTesting] = useState<Transport | null>(null);
  const [moving, setMoving] = useState<Orphaned | null>(null);
  const moved = () => {
    setMoving(null);
    reload();
  };
  return (
    <section class="stack" aria-label="Transports">
      {heading && <h2>Transports</h2>}
      {list.orphaned.length > 0 && <OrphanedList orphaned={list.orphaned} move={setMoving} />}
      <div class="card flush">
        <Table label="Transports" rows={list.data} keyOf={({ name }) => name} columns={[
          { head: "Name", cell: ({ name, kind }) => <><strong>{name}</strong><span class="sub">{kind}</span></> },
          { head: "State", cell: (transport) => <Health transport={transport} /> },
          { head: "In flight", number: true, wide: true, cell: ({ in_flight: count }) => count },
          { head: "After a lost answer", wide: true, cell: ({ unknown_recovery: recovery }) => RECOVERY[recovery] },
          { head: "Actions", cell: (transport) => <Button class="small" disabled={!may("operator")} label={`Test ${transport.name}`} onPress={() => setTesting(transport)}>Test…</Button> },
        ]} />
      </div>
      {testing && <TestDialog transport={testing} names={names} close={() => setTesting(null)} />}
      {moving && <RerouteDialog orphaned={moving} transports={list.data} close={() => setMoving(null)} done={moved} />}
    </section>
  );
}
