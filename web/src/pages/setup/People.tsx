// People of the team, where questions are posted, and the programs that people connected.
import { useState } from "preact/hooks";
import { del, post } from "../../api/client";
import { usePages } from "../../api/load";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { confirm } from "../../components/Dialog";
import { Loading } from "../../components/Empty";
import { List } from "../../components/List";
import { Problem } from "../../components/Problem";
import { SecretDialog } from "../../components/SecretDialog";
import { More } from "../../components/Table";
import { Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { loadSession, may, sessionState } from "../../session/session";
import { Connections } from "./Connections";
import { PersonForm, type Person } from "./PersonForm";
import { SetupPage } from "./SetupPage";
import { Targets } from "./Targets";

type SignInLink = Schema["SignInLinkBody"];

const isSelf = (person: Person): boolean => sessionState.value.status === "in" && sessionState.value.session.person.id === person.id;

async function signOutEverywhere(person: Person): Promise<boolean> {
  const body = <p>All sessions, connections, sign-in links and approval links of {person.name} end within a second.{isSelf(person) && " That includes this browser."}</p>;
  const yes = await confirm({ title: `Sign ${person.name} out everywhere?`, body, action: "Sign out", danger: true });
  if (yes) await post(`/v1/people/${person.id}/sign-out`, undefined);
  return yes;
}

async function remove(person: Person): Promise<boolean> {
  const yes = await confirm({ title: `Remove ${person.name}?`, body: <p>All sessions end within a second. The audit log keeps what {person.name} did.</p>, action: "Remove person", danger: true });
  if (yes) await del(`/v1/people/${person.id}`);
  return yes;
}

interface PersonActionsProps {
  person: Person;
  edit: () => void;
  linked: (link: SignInLink) => void;
  changed: (words: string) => void;
}

function PersonActions({ person, edit, linked, changed }: PersonActionsProps) {
  const allowed = may("admin");
  const link = async () => linked(await post<SignInLink>(`/v1/people/${person.id}/sign-in-links`, undefined));
  return (
    <div class="row">
      <Button class="small" disabled={!allowed} label={`Sign-in link for ${person.name}`} onPress={link}>Sign-in link</Button>
      <Button class="small" disabled={!allowed} label={`Edit ${person.name}`} onPress={edit}>Edit…</Button>
      <Button class="small" disabled={!allowed} label={`Sign out ${person.name}`} onPress={async () => void ((await signOutEverywhere(person)) && changed("Signed out"))}>Sign out</Button>
      {!isSelf(person) && <Button class="small" kind="danger" disabled={!allowed} label={`Remove ${person.name}`} onPress={async () => void ((await remove(person)) && changed("Removed"))}>Remove</Button>}
    </div>
  );
}

/** Everybody can end their own sessions. Administrators do it in the list of people. */
function OwnSessions() {
  const state = sessionState.value;
  if (state.status !== "in") return null;
  // The next call finds no session, and the dashboard asks to sign in.
  const end = async () => void ((await signOutEverywhere(state.session.person)) && (await loadSession()));
  return (
    <section class="stack" aria-labelledby="own-sessions">
      <h2 id="own-sessions">Your sessions</h2>
      <p class="muted">If you left a browser signed in, or lost a device, end everything that can act for you.</p>
      <p><Button kind="danger" onPress={end}>End all sessions…</Button></p>
    </section>
  );
}

/** Everybody sees their own connections and can end them. The rest is for administrators. */
export function PeopleOrConnections() {
  if (may("admin")) return <People />;
  return (
    <SetupPage section="people">
      <Connections />
      <OwnSessions />
      <p class="muted">Administrators also see the people of the team here, and where questions are posted. That needs the scope <code>admin</code>.</p>
    </SetupPage>
  );
}

function People() {
  const { items, problem, loading, done, more, reload } = usePages<Person>("/v1/people", { limit: 50 });
  const [form, setForm] = useState<{ person: Person | null } | null>(null);
  const [link, setLink] = useState<SignInLink | null>(null);
  const changed = (words: string) => {
    setForm(null);
    toast(words);
    void reload();
  };
  return (
    <SetupPage section="people" actions={<Button kind="primary" disabled={!may("admin")} onPress={() => setForm({ person: null })}>Add person…</Button>}>
      {problem && <Problem problem={problem} retry={reload} />}
      {items.length === 0 && loading && !done && <Loading />}
      {items.length > 0 && (
        <List label="People" items={items} keyOf={({ id }) => id} render={(person) => (
          <div class="setup-row" data-row="" tabIndex={-1}>
            <div>
              <p class="row"><strong>{person.name}</strong>{isSelf(person) && <span class="muted">you</span>}<span class="chip">{person.role}</span>{person.operator && <span class="chip">operator</span>}</p>
              <p class="muted small-text">{person.address ? `${person.address}, ` : ""}added <Time at={person.created_at} /></p>
            </div>
            <PersonActions person={person} edit={() => setForm({ person })} linked={setLink} changed={changed} />
          </div>
        )} />
      )}
      <More done={done || items.length === 0} loading={loading} more={more} />
      <Targets />
      <Connections />
      {form && <PersonForm person={form.person} close={() => setForm(null)} done={() => changed("Saved")} />}
      {link && (
        <SecretDialog title={`Sign-in link for ${link.person.name}`} secret={link.url} label="the sign-in link" onClose={() => setLink(null)}>
          <p>It signs in once, until <Time at={link.expires_at} />. Whoever has it can sign in as {link.person.name}.</p>
        </SecretDialog>
      )}
    </SetupPage>
  );
}
