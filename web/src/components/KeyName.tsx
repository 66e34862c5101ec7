// An idempotency key. Keys that were derived from an intent are hashes, whose ends are enough to recognize them.

export const shortKey = (key: string): string => (/^i\d_[0-9a-f]{64}$/.test(key) ? `${key.slice(0, 9)}…${key.slice(-6)}` : key);

/** Whether a caller can use the key. Items of batches, resent and erased emails have names instead, which no call accepts. */
export const isUsableKey = (key: string): boolean => !/\[\d+\]$|^(resend of|erased) /.test(key);

export const KeyName = ({ value }: { value: string }) => <code title={value}>{shortKey(value)}</code>;
