// Hides codes and links in the text of a message until the user asks for them.
import type { Schema } from "../../api/types";

type Artifact = Schema["ArtifactBody"];

const inHtml = (value: string) => value.replaceAll("&", "&amp;");

/** Replaces each value by its masked form, also where HTML writes `&` as an entity. */
export function maskValues(text: string, artifacts: Artifact[]): string {
  let masked = text;
  for (const { value, masked: cover } of artifacts) {
    if (value) masked = masked.replaceAll(value, cover).replaceAll(inHtml(value), cover);
  }
  return masked;
}
