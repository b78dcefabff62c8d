// Starts a service on the agent's machine and lets the agent begin only when the service answers. The service ends with
// the session.

import type { Context, Plug } from '../../sdk/plug.d.ts';

interface Config {
  command: string[];
  port: number;
  /** How long the service may take to answer, in seconds. */
  withinSeconds?: number;
}

async function answers(ctx: Context<Config>): Promise<boolean> {
  try {
    await using _connection = await ctx.host.connect(ctx.config.port);
    return true;
  } catch {
    return false;
  }
}

export default {
  async onSession(ctx) {
    const { command, port, withinSeconds = 30 } = ctx.config;
    const service = await ctx.host.spawn(command, { stdout: 'null', stderr: 'null' });
    ctx.defer(() => service.kill('SIGKILL', { group: true }));
    const deadline = Date.now() + withinSeconds * 1000;
    while (!(await answers(ctx))) {
      if (Date.now() > deadline) throw new Error(`nothing answers at port ${port} after ${withinSeconds} s`);
      await ctx.sleep(100);
    }
    ctx.log(`port ${port} answers`);
    ctx.agent.env.SERVICE_PORT = port;
  },
} satisfies Plug<Config>;
