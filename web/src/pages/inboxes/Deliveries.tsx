// Every arrival of mail at an inbox, also those that made no message.
import { post } from "../../api/client";
import { usePages } from "../../api/load";
import { useRefreshPages } from "../../api/refresh";
import type { Schema } from "../../api/types";
import { Button } from "../../components/Button";
import { Code } from "../../components/Code";
import { Empty, Loading } from "../../components/Empty";
import { Problem } from "../../components/Problem";
import { StateChip, type Tone } from "../../components/StateChip";
import { More, Table } from "../../components/Table";
import { bytes, Time } from "../../components/Time";
import { toast } from "../../components/Toast";
import { may } from "../../session/session";

type Delivery = Schema["DeliveryBody"];
const PAGE = 50;
const TONES: Record<Delivery["state"], Tone> = { waiting: "busy", done: "good", duplicate: "plain", refused: "bad", dead: "bad" };

const why = ({ reason, last_error: error }: Delivery) => error ?? reason?.replaceAll("_", " ") ?? "";

export function Deliveries({ inbox, address }: { inbox: string; address: string }) {
  const pages = usePages<Delivery>("/v1/deliveries", { inbox, limit: PAGE });
  const { items, problem, loading, done, more, reload } = pages;
  useRefreshPages("delivery.*,message.received", pages, PAGE);
  const replay = async ({ id }: Delivery) => {
    await post(`/v1/deliveries/${id}/replay`);
    toast("The mail is processed again");
    await reload();
  };
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (items.length === 0 && !done) return <Loading lines={4} />;
  if (items.length === 0) {
    return (
      <Empty title="Nothing arrived yet">
        <p>Every arrival is listed here, with the reason when it made no message. Let a mail arrive three times:</p>
        <Code label="the command" text={`mailonce simulate inbound --to ${address} --code --duplicate 3`} />
      </Empty>
    );
  }
  return (
    <div class="card flush">
      <Table label="Arrivals" rows={items} keyOf={({ id }) => id} columns={[
        { head: "From", cell: ({ sender, message_id: id }) => (id ? <a href={`/messages/${id}`}>{sender || "empty return path"}</a> : sender || "empty return path") },
        { head: "State", cell: ({ state }) => <StateChip state={state} tone={TONES[state]} /> },
        { head: "Why", cell: (delivery) => <>{why(delivery)} {delivery.state === "dead" && may("admin") && <Button class="small" onPress={() => replay(delivery)}>Try again</Button>}</> },
        { head: "By", wide: true, cell: ({ intake, ip }) => <>{intake} {ip && <span class="muted">{ip}</span>}</> },
        { head: "Size", wide: true, number: true, cell: ({ size }) => bytes(size) },
        { head: "When", cell: ({ received_at: at }) => <Time at={at} /> },
      ]} />
      <More done={done} loading={loading} more={more} />
    </div>
  );
}
