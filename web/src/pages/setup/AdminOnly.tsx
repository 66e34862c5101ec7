// Sections that only administrators may read say so, instead of making calls that are refused.
import type { ComponentType } from "preact";
import { Empty } from "../../components/Empty";
import { may } from "../../session/session";
import type { SectionName } from "./sections";
import { SetupPage } from "./SetupPage";

export const adminOnly = (section: SectionName, Section: ComponentType) =>
  function AdminOnly() {
    if (may("admin")) return <Section />;
    return (
      <SetupPage section={section}>
        <Empty title="Only administrators see this"><p>It needs the scope <code>admin</code>. Ask an administrator of your team for the role.</p></Empty>
      </SetupPage>
    );
  };
