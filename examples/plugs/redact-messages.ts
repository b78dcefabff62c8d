// Replaces what must not be kept (addresses, keys, names of customers) in everything that the agent says, before the
// runner sees it, and refuses messages to the agent that hold it.

import type { Plug } from '../../sdk/plug.d.ts';

interface Config {
  /** Regular expressions. */
  patterns: string[];
  replacement?: string;
}

/** Changes every text inside a value, and leaves the value's shape alone. */
function mapTexts(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, change));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mapTexts(item, change)]));
}

let redacted = 0;

export default {
  onSession(ctx) {
    // A pattern that is none is an error now, and not with the first message.
    for (const pattern of ctx.config.patterns) new RegExp(pattern, 'gu');
    return () => ctx.log(`redacted ${redacted} passages`);
  },
  onMessage(ctx, { direction, json, text }) {
    const { patterns, replacement = '[redacted]' } = ctx.config;
    const change = (original: string): string =>
      patterns.reduce((so_far, pattern) => so_far.replace(new RegExp(pattern, 'gu'), () => {
        redacted += 1;
        return replacement;
      }), original);
    const before = redacted;
    const changed = json === null ? change(text) : mapTexts(json, change);
    if (redacted === before) return undefined;
    if (direction === 'toAgent') ctx.log.warn('a prompt held what is to be redacted');
    return { change: changed };
  },
} satisfies Plug<Config>;
