// Sends files that the agent left behind to a server, when the session is over. It reads them as streams of moderate
// size, and tells at the end what was there.

import type { Context, Plug } from '../../sdk/plug.d.ts';

interface Config {
  /** A directory on the agent's machine. */
  from: string;
  /** Each file is PUT below this address. */
  to: string;
  /** Endings of names; all files where there are none. */
  endings?: string[];
  maxBytes?: number;
}

async function send(ctx: Context<Config>, path: string): Promise<'sent' | 'too large'> {
  const { from, to, maxBytes = 16 * 1024 * 1024 } = ctx.config;
  const files = ctx.host.fs.promises;
  if ((await files.stat(`${from}/${path}`)).size > maxBytes) return 'too large';
  const address = new URL(path.split('/').map(encodeURIComponent).join('/'), to.endsWith('/') ? to : `${to}/`);
  const response = await fetch(address, {
    method: 'PUT',
    body: await files.readFile(`${from}/${path}`),
    headers: { 'content-type': 'application/octet-stream' },
  });
  if (!response.ok) throw new Error(`${address} answered ${response.status}`);
  return 'sent';
}

export default {
  onSession: (ctx) => async (ended) => {
    if (ended.kind === 'paused') return;
    const { from, endings = [''] } = ctx.config;
    const entries = await ctx.host.fs.promises.readdir(from, { recursive: true, withFileTypes: true });
    const paths = entries
      .filter((entry) => entry.isFile() && endings.some((ending) => entry.name.endsWith(ending)))
      .map((entry) => `${entry.parentPath}/${entry.name}`.slice(from.length + 1));
    for (const path of paths) ctx.log(`${path}: ${await send(ctx, path)}`);
  },
} satisfies Plug<Config>;
