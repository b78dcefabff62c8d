// Each of these has to be an error: otherwise the types beside it would say nothing.

import type { Context, Plug } from '../plug.d.ts';

declare const ctx: Context;

// @ts-expect-error: without an encoding it is a Buffer
export const text: string = await ctx.host.fs.promises.readFile('a');
// @ts-expect-error: a synchronous method gives no promise
export const later: Promise<string[]> = ctx.host.fs.readdirSync('.');
// @ts-expect-error: there is no such method
export const mistake = ctx.host.fs.promises.readfile;
// @ts-expect-error: the environment is text
ctx.agent.env['A'] = { a: 1 };
// @ts-expect-error: no signal has this name
void ctx.host.spawn('sleep', ['1']).then((child) => child.kill('SIGNOTHING'));
// @ts-expect-error: no verdict looks like this
export const plug: Plug = { onMessage: () => ({ forward: true }) };
// @ts-expect-error: the config is a string here
export const configured: Plug<string> = (given) => given.config.name;
