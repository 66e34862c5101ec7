// Settles an email whose outcome is unknown.
import { get } from "../../api/client";
import { useLoad } from "../../api/load";
import type { EmailDetail, Escalation } from "../../api/types";
import { Loading } from "../../components/Empty";
import { Problem } from "../../components/Problem";
import { toast } from "../../components/Toast";
import { Choices, EMAIL_CHOICES } from "./Choices";
import { Evidence } from "./Evidence";
import { decide } from "./queue";

export function SettleEmail({ escalation, email: id, done }: { escalation: Escalation; email: string; done: () => void }) {
  const { data, problem, reload } = useLoad((signal) => get<EmailDetail>(`/v1/emails/${id}`, {}, { signal }), [id]);
  const settle = async (as: "sent" | "resend" | "abandon", reason: string) => {
    await decide(escalation, { as, reason: reason || null });
    toast({ sent: "Marked as sent", resend: "Sending it again", abandon: "Given up" }[as]);
    done();
  };
  if (problem) return <Problem problem={problem} retry={reload} />;
  if (!data) return <Loading />;
  return (
    <>
      <p>{data.from} → {data.to.join(", ")} · <a href={`/emails/${data.id}`}>whole email</a></p>
      <Evidence email={data} only="unknown" />
      <Choices choices={EMAIL_CHOICES} settle={settle} />
    </>
  );
}
