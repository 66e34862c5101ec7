// The frame of the set-up sections: heading, the links to all sections, and the section itself.
import type { ComponentChildren } from "preact";
import { PageHead } from "../../components/PageHead";
import { SECTIONS, type SectionName } from "./sections";

export function SetupPage({ section, actions, children }: { section: SectionName; actions?: ComponentChildren; children: ComponentChildren }) {
  const { label, intro } = SECTIONS[section];
  return (
    <>
      <PageHead title={label} intro={intro}>{actions}</PageHead>
      <nav class="setup-nav" aria-label="Set-up">
        <ul>
          {Object.entries(SECTIONS).map(([name, other]) => (
            <li key={name}><a href={`/setup/${name}`} aria-current={name === section ? "page" : undefined}>{other.label}</a></li>
          ))}
        </ul>
      </nav>
      {children}
    </>
  );
}
