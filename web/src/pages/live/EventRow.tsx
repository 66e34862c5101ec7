// One event: a line, and below it, when opened, the calls behind it and its JSON.
import { useComputed } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get } from "../../api/client";
import { useLoad } from "../../api/load";
import type { EmailDetail, MailEvent } from "../../api/types";
import { CallTabs } from "../../components/CallTabs";
import { Code } from "../../components/Code";
import { Loading } from "../../components/Empty";
import { Problem } from "../../components/Problem";
import { Tabs, type Tab } from "../../components/Tabs";
import { Time } from "../../components/Time";
import { isFromSend, makingCall, readingCall } from "./event-calls";
import { namedIn, nameOf, placeOf, toneOf, wordsOf } from "./event-words";
import { wantName } from "./names";
import { findSendingCall } from "./sending-call";

function SendCall({ id }: { id: string }) {
  const { data, problem, reload } = useLoad(async (signal) => findSendingCall(await get<EmailDetail>(`/v1/emails/${id}`, {}, { signal }), signal), [id]);
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (!data) return <Loading lines={2} />;
  if ("why" in data) return <p class="notice">The call that made it cannot be copied. {data.why}</p>;
  return (
    <div class="stack">
      <CallTabs call={data.call} label="the call that made it" />
      {data.note && <p class="muted">{data.note}</p>}
    </div>
  );
}

function Detail({ event }: { event: MailEvent }) {
  const made = makingCall(event);
  const tabs: Tab[] = [
    { name: "read", label: "Read it", content: () => <CallTabs call={readingCall(event)} label="the call that reads it" /> },
    { name: "json", label: "JSON", content: () => <Code text={JSON.stringify(event, null, 2)} label="the JSON of the event" wrap /> },
  ];
  if (isFromSend(event)) tabs.unshift({ name: "made", label: "The call that made it", content: () => <SendCall id={event.about.id} /> });
  else if (made) tabs.unshift({ name: "made", label: "The call that made it", content: () => <CallTabs call={made} label="the call that made it" /> });
  return <div class="live-detail"><Tabs label="Event" tabs={tabs} /></div>;
}

const rows = new WeakMap<MailEvent, VNode>();

/** The same element for the same event, which lets Preact skip the rows that were there before. */
export function rowOf(event: MailEvent): VNode {
  const row = rows.get(event) ?? <EventRow event={event} />;
  rows.set(event, row);
  return row;
}

function EventRow({ event }: { event: MailEvent }) {
  const [open, setOpen] = useState(false);
  useEffect(() => {
    for (const [kind, id] of namedIn(event)) wantName(kind, id);
  }, [event.id]);
  const place = placeOf(event);
  // Computed, so that a new name renders only the rows that show it.
  const name = useComputed(() => nameOf(event)).value;
  const words = useComputed(() => wordsOf(event)).value;
  return (
    <div class="live-event">
      <div class="live-line">
        <button type="button" class="live-open" data-row="" aria-expanded={open} aria-label={`${event.type}: ${name}`} onClick={() => setOpen(!open)}>
          <span aria-hidden="true">{open ? "▾" : "▸"}</span>
        </button>
        <span class="live-time"><Time at={event.at} /></span>
        <span class="live-type"><span class={`chip ${toneOf(event.type)}`}>{event.type}</span></span>
        <span class="live-name">{place ? <a href={place}>{name}</a> : name}</span>
        <span class="live-words">{words}</span>
      </div>
      {open && <Detail event={event} />}
    </div>
  );
}
