// Which colors of a mail its frame keeps. The styles of the mail are left out, and with them the colors that would stand
// beside these: a light text would be on white paper, and dark text in a dark cell. So only dark text and light cells keep
// their color, which can be read in every combination.

const NAMED: Record<string, string> = {
  black: "000000", gray: "808080", maroon: "800000", red: "ff0000", purple: "800080", green: "008000", olive: "808000", navy: "000080", blue: "0000ff", teal: "008080",
  white: "ffffff", silver: "c0c0c0", yellow: "ffff00", lime: "00ff00", aqua: "00ffff", fuchsia: "ff00ff",
};
const DARKEST_PAPER = 0.6;
const LIGHTEST_TEXT = 0.22;

function digitsOf(color: string): string | undefined {
  const [, short, long] = /^#(?:([0-9a-f]{3})|([0-9a-f]{6}))$/.exec(color) ?? [];
  return long ?? short?.replace(/./g, "$&$&") ?? NAMED[color];
}

/** The relative luminance (WCAG 2), or null for a color that is written in another way. */
function luminance(color: string): number | null {
  const digits = digitsOf(color.trim().toLowerCase());
  if (!digits) return null;
  const [red = 0, green = 0, blue = 0] = [0, 2, 4].map((at) => {
    const part = Number.parseInt(digits.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Whether text can be read with this value of `color` or `bgcolor`. */
export function isReadable(attribute: string, color: string): boolean {
  const light = luminance(color);
  if (light === null) return false;
  return attribute === "bgcolor" ? light >= DARKEST_PAPER : light <= LIGHTEST_TEXT;
}
