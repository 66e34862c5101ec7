// The five levels, each with the stops that are in force.
import { useState } from "preact/hooks";
import { Button } from "../../components/Button";
import { StateChip } from "../../components/StateChip";
import { Time } from "../../components/Time";
import { may } from "../../session/session";
import { levelOf, LEVELS, scopeName, type LevelWords, type Names, type Stop } from "./scopes";
import { ResumeDialog, StopDialog } from "./StopDialogs";

function StopRow({ stop, names, mayEnd, resume }: { stop: Stop; names: Names; mayEnd: boolean; resume: () => void }) {
  return (
    <li class="stops-stop">
      <div>
        <p class="row"><strong>{scopeName(stop.scope, names)}</strong> <StateChip state={stop.state} tone={stop.state === "in_force" ? "bad" : "busy"} /></p>
        <p>{stop.reason || <span class="muted">No reason was given.</span>}</p>
        <p class="muted small-text">by {stop.by}, <Time at={stop.created_at} /> · new email {stop.mode === "wait" ? "waits" : "is refused"}</p>
      </div>
      <Button disabled={!mayEnd} onPress={resume}>{stop.state === "releasing" ? "Change rate…" : "Resume…"}</Button>
    </li>
  );
}

function LevelRow({ words, stops, names, stop, resume }: { words: LevelWords; stops: Stop[]; names: Names; stop: () => void; resume: (stop: Stop) => void }) {
  const allowed = may(words.needs);
  const inForce = stops.some(({ state }) => state === "in_force");
  return (
    <li class={inForce ? "stops-level stopped" : "stops-level"}>
      <div class="stops-level-head">
        <div>
          <h3>{words.label}</h3>
          <p class="muted small-text">{words.covers}</p>
        </div>
        <StateChip state={inForce ? "stopped" : "running"} />
        <Button kind="danger" class="small" disabled={!allowed} label={`Stop: ${words.label}`} title={allowed ? undefined : `Needs the scope ${words.needs}`} onPress={stop}>Stop…</Button>
      </div>
      {stops.length > 0 && (
        <ul aria-label={`Stops: ${words.label}`}>
          {stops.map((entry) => <StopRow key={entry.id} stop={entry} names={names} mayEnd={allowed} resume={() => resume(entry)} />)}
        </ul>
      )}
    </li>
  );
}

export interface StopLevelsProps {
  stops: Stop[];
  names: Names;
  transports: string[];
  reload: () => void;
}

export function StopLevels({ stops, names, transports, reload }: StopLevelsProps) {
  const [stopping, setStopping] = useState<LevelWords | null>(null);
  const [ending, setEnding] = useState<Stop | null>(null);
  const options = (words: LevelWords): [string, string][] =>
    words.level === "inbox" ? names.inboxes : words.level === "api_key" ? names.apiKeys : transports.map((name) => [name, name]);
  const close = () => {
    setStopping(null);
    setEnding(null);
  };
  const done = () => {
    close();
    reload();
  };
  return (
    <section class="stack" aria-labelledby="stops">
      <h2 id="stops">Stops</h2>
      <ul class="list">
        {LEVELS.map((words) => (
          <LevelRow key={words.level} words={words} stops={stops.filter(({ scope }) => levelOf(scope) === words.level)} names={names}
            stop={() => setStopping(words)} resume={setEnding} />
        ))}
      </ul>
      {stopping && <StopDialog level={stopping} options={options(stopping)} close={close} done={done} />}
      {ending && <ResumeDialog stop={ending} names={names} close={close} done={done} />}
    </section>
  );
}
