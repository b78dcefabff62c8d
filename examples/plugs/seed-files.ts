// Writes files before the agent starts, and removes those that it made when the session is over. A file that is there
// already is left alone, at the start and at the end.

import type { Plug } from '../../sdk/plug.d.ts';

interface Config {
  /** Contents by path. A path that ends with `.sh` can be executed. */
  files: Record<string, string>;
}

const parentOf = (path: string): string => path.replace(/\/[^/]*$/, '') || '/';

export default {
  async onSession(ctx) {
    const files = ctx.host.fs.promises;
    const made: string[] = [];
    // At once, and not only when all are written: the session may fail in between.
    ctx.defer(async () => {
      for (const path of made.reverse()) await files.rm(path, { force: true });
      ctx.log(`removed ${made.length} files`);
    });
    for (const [path, content] of Object.entries(ctx.config.files)) {
      if (path.includes('/')) await files.mkdir(parentOf(path), { recursive: true });
      try {
        await files.writeFile(path, content, { flag: 'wx', mode: path.endsWith('.sh') ? 0o755 : 0o644 });
        made.push(path);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
        ctx.log.warn(`${path} is there already`);
      }
    }
  },
} satisfies Plug<Config>;
