// Puts a toolchain on the agent's machine: fetches an archive on the runner, checks it, unpacks it there once, and adds
// its programs to the agent's PATH. The machine itself needs no network for it.

import type { Context, Plug } from '../../sdk/plug.d.ts';

interface Config {
  /** An archive that `tar` opens. */
  url: string;
  sha256: string;
  /** Where it is to be, on the agent's machine. */
  into: string;
  /** The directory of programs inside it. */
  bin?: string;
}

async function isThere(ctx: Context<Config>, marker: string): Promise<boolean> {
  const { sha256 } = ctx.config;
  const found = await ctx.host.fs.promises.readFile(marker, 'utf8').catch(() => '');
  return found.trim() === sha256;
}

async function install(ctx: Context<Config>, marker: string): Promise<void> {
  const { url, sha256, into } = ctx.config;
  const files = ctx.host.fs.promises;
  const response = await fetch(url, { signal: ctx.signal });
  if (!response.ok) throw new Error(`${url} answered ${response.status} ${response.statusText}`);
  await files.mkdir(into, { recursive: true });
  const archive = `${into}/.archive`;
  try {
    await files.writeFile(archive, await response.bytes());
    await ctx.host.run(['sha256sum', '--check', '--status', '-'], { input: `${sha256}  ${archive}\n` });
    await ctx.host.run(['tar', '-xf', archive, '-C', into]);
  } finally {
    await files.rm(archive, { force: true });
  }
  await files.writeFile(marker, `${sha256}\n`);
}

export default {
  timeouts: { onSession: 10 * 60_000 },
  async onSession(ctx) {
    const { into, bin = 'bin' } = ctx.config;
    const marker = `${into}/.installed`;
    if (await isThere(ctx, marker)) ctx.log(`${into} is there already`);
    else {
      await install(ctx, marker);
      ctx.log(`installed ${into}`);
    }
    const rest = ctx.agent.env.PATH ?? '/usr/local/bin:/usr/bin:/bin';
    ctx.agent.env.PATH = `${into}/${bin}:${rest}`;
  },
} satisfies Plug<Config>;
