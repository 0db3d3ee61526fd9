// Words and numbers that the pages of capacity share.

export const marketWord = (market) => (market === "spot" ? "spot" : "on demand");

export const slotsWord = (count) => `${count.toLocaleString("en-US")} slot${count === 1 ? "" : "s"}`;

/** Slots that nobody has and nobody gets. */
export const excluded = (pool) => pool.hosts.filter((host) => host.excluded).reduce((sum, host) => sum + host.free, 0);

/** 0.3, 1, 12.25: prices are set by people, and read as they were set. */
export const price = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 6 });
