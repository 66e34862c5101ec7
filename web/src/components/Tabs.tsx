// Tabs with the arrow keys. Only the panel that is shown exists.
import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";

export interface Tab {
  name: string;
  label: ComponentChildren;
  content: () => ComponentChildren;
}

export function Tabs({ label, tabs, start }: { label: string; tabs: Tab[]; start?: string }) {
  const [selected, select] = useState(start ?? tabs[0]?.name ?? "");
  const list = useRef<HTMLDivElement>(null);
  const id = useId();
  const at = Math.max(0, tabs.findIndex((tab) => tab.name === selected));
  const active = tabs[at];
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = (at + step + tabs.length) % tabs.length;
    select(tabs[next]?.name ?? selected);
    (list.current?.children[next] as HTMLElement | undefined)?.focus();
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label={label} ref={list} onKeyDown={onKeyDown}>
        {tabs.map((tab) => (
          <button type="button" role="tab" key={tab.name} id={`${id}-${tab.name}`} aria-selected={tab === active} aria-controls={`${id}-panel`}
            tabIndex={tab === active ? 0 : -1} onClick={() => select(tab.name)}>{tab.label}</button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${active?.name ?? ""}`} tabIndex={0}>{active?.content()}</div>
    </div>
  );
}
