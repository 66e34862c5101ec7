// The first page: teaches while there is no email, and is the overview afterwards.
import { useState } from "preact/hooks";
import { get } from "../../api/client";
import { useLoad } from "../../api/load";
import { useSender } from "../../api/sender";
import type { Email, Page } from "../../api/types";
import { Loading } from "../../components/Empty";
import { PageHead } from "../../components/PageHead";
import { Problem } from "../../components/Problem";
import { FirstRun } from "./FirstRun";
import { Overview } from "./Overview";

export function Home() {
  const { data, problem, reload } = useLoad((signal) => get<Page<Email>>("/v1/emails", { limit: 1 }, { signal }), []);
  const sender = useSender()?.address;
  const [left, setLeft] = useState(false);
  if (problem) return <><PageHead title="Overview" /><Problem problem={problem} retry={reload} /></>;
  if (!data || !sender) return <><PageHead title="Overview" /><Loading lines={6} /></>;
  // The first emails do not end the lesson; leaving it does.
  return data.data.length === 0 && !left ? <FirstRun sender={sender} leave={() => setLeft(true)} /> : <Overview sender={sender} />;
}
