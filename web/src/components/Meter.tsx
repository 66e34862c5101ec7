// How much of a limit is used, as a bar with its numbers.

export function Meter({ label, used, limit }: { label: string; used: number; limit: number }) {
  const share = limit > 0 ? Math.min(1, used / limit) : 1;
  const tone = share >= 1 ? "bad" : share >= 0.8 ? "wait" : "accent";
  const words = `${used.toLocaleString("en")} of ${limit.toLocaleString("en")}`;
  return (
    <div class="meter">
      <div class="meter-track" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={limit} aria-valuenow={Math.min(used, limit)} aria-valuetext={words}>
        <div class={`meter-fill ${tone}`} style={{ width: `${share * 100}%` }} />
      </div>
      <span class="meter-words">{words}</span>
    </div>
  );
}
