// What modules keep of the team that is signed in. Nothing of it may be shown to the next team.
const clears: (() => void)[] = [];

/** Calls `clear` whenever the team changes or the session ends. */
export const onTeamChange = (clear: () => void): void => {
  clears.push(clear);
};

export const clearTeamData = (): void => clears.forEach((clear) => clear());
