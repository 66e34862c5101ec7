// Lists that come in pages.

/** Every item of every page. */
export async function* each<T>(
  start: string | null | undefined,
  page: (cursor: string | null) => Promise<{ data: T[]; next_cursor?: string | null }>,
): AsyncGenerator<T, void, undefined> {
  let cursor = start ?? null;
  do {
    const { data, next_cursor } = await page(cursor);
    yield* data;
    cursor = next_cursor ?? null;
  } while (cursor !== null);
}
