// The overlay with the keyboard shortcuts that are active now.
import { signal } from "@preact/signals";
import { Dialog } from "./Dialog";
import { activeShortcuts, useShortcuts } from "./keys";
import { absoluteTimes, toggleTimes } from "./Time";

const open = signal(false);
export const showHelp = (): void => void (open.value = true);

const Keys = ({ keys }: { keys: string }) => <>{keys.split(" ").map((key, index) => <span key={key}>{index > 0 && " then "}<kbd>{key}</kbd></span>)}</>;

export function Help() {
  useShortcuts("Times", [{ keys: "d", does: absoluteTimes.value ? "show how long ago something was" : "show the date and time in lists", run: toggleTimes }], true);
  if (!open.value) return null;
  const groups = activeShortcuts.value.filter(({ shortcuts }) => shortcuts.length > 0);
  return (
    <Dialog title="Keyboard shortcuts" onClose={() => (open.value = false)}>
      <div class="help">
        {groups.map(({ title, shortcuts }) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {shortcuts.map(({ keys, does }) => <div key={keys}><dt><Keys keys={keys} /></dt><dd>{does}</dd></div>)}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
