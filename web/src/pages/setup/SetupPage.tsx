// The frame of the set-up sections: heading, the links to all sections, and the section itself.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { PageHead } from "../../components/PageHead";
import { SECTIONS, type SectionName } from "./sections";

export function SetupPage({ section, actions, children }: { section: SectionName; actions?: ComponentChildren; children: ComponentChildren }) {
  const { label, intro } = SECTIONS[section];
  const nav = useRef<HTMLElement>(null);
  // On a phone the links are wider than the window.
  useEffect(() => nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), []);
  return (
    <>
      <PageHead title={label} intro={intro}>{actions}</PageHead>
      <nav ref={nav} class="setup-nav" aria-label="Set-up">
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
