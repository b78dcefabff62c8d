// H6, H9: `ctx.host.fs` has the types of Node's file system, so code that is written for that takes it.

import type * as fs from 'node:fs';
import type * as fsPromises from 'node:fs/promises';
import type { VirtualFileSystem } from 'node:vfs';
import type { Context, HostFileSystem, Plug } from '../plug.d.ts';

declare const ctx: Context;

// Node's own virtual file systems have these besides: they are of the file system that one makes, not of its files.
const vfs: Omit<VirtualFileSystem, 'provider' | 'readonly'> = ctx.host.fs;
const promises: Pick<typeof fsPromises, 'readFile' | 'rm' | 'mkdtemp' | 'truncate' | 'watch'> = ctx.host.fs.promises;
const sync: Pick<typeof fs, 'readFileSync' | 'statSync' | 'openSync'> = ctx.host.fs;

// A library that was written for `node:fs`.
async function library(files: Pick<typeof fs, 'promises' | 'existsSync'>['promises']['readFile']): Promise<string> {
  return files('a', 'utf8');
}
void library(ctx.host.fs.promises.readFile);

const text: string = await ctx.host.fs.promises.readFile('a', { encoding: 'utf8' });
const names: string[] = ctx.host.fs.readdirSync('.');
const entries: fs.Dirent[] = await ctx.host.fs.promises.readdir('.', { withFileTypes: true });
const size: number = (await ctx.host.fs.promises.stat('a')).size;
const big: bigint = ctx.host.fs.statSync('a', { bigint: true }).size;

const output: string = (await ctx.host.run('ls', ['-l'])).stdout;
const bytes: Buffer = (await ctx.host.run(['ls'], { encoding: 'buffer' })).stdout;
const plug: Plug<{ name: string }> = (given) => given.log(given.config.name);

export { vfs, promises, sync, text, names, entries, size, big, output, bytes, plug };
export type Files = HostFileSystem;
