// A host: processes, files and connections on one machine. Each file operation is in `fs.js`.
'use strict';
{
  const { bulkhead } = globalThis;

  const SIGNALS = new Set(['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGTERM', 'SIGSTOP', 'SIGCONT', 'SIGKILL']);

  class Process extends bulkhead.EventEmitter {
    #id;
    #exited = null;
    exitCode = null;
    signalCode = null;
    constructor({ id, stdin, stdout, stderr }) {
      super();
      this.#id = id;
      this.stdin = stdin === null ? null : bulkhead.writableOf(stdin);
      this.stdout = stdout === null ? null : bulkhead.readableOf(stdout);
      this.stderr = stderr === null ? null : bulkhead.readableOf(stderr);
    }
    // How it ended: `{ code, signal }`, one of which is null.
    wait() {
      this.#exited ??= bulkhead.call('processWait', this.#id).then((end) => {
        this.exitCode = end.code;
        this.signalCode = end.signal;
        this.emit('exit', end.code, end.signal);
        this.emit('close', end.code, end.signal);
        return end;
      });
      return this.#exited;
    }
    get exited() { return this.wait(); }
    on(name, listener) {
      super.on(name, listener);
      if (name === 'exit' || name === 'close') this.wait().catch((error) => bulkhead.report(error));
      return this;
    }
    // Sends a signal to the process, or to it and what it started.
    async kill(signal = 'SIGTERM', { group = false } = {}) {
      if (!SIGNALS.has(signal)) throw new TypeError(`Unknown signal: ${signal}`);
      await bulkhead.call('processSignal', this.#id, signal, group);
    }
    async resize(columns, rows) { await bulkhead.call('processResize', this.#id, columns, rows); }
  }

  const commandOf = (command, args) => {
    if (Array.isArray(command)) return command.map(String);
    if (typeof command !== 'string') throw new TypeError('The command must be a program and its arguments');
    return [command, ...(args ?? []).map(String)];
  };

  class Failed extends Error {
    name = 'CommandError';
  }

  class Connection {
    constructor({ id, end }) {
      this.readable = bulkhead.readableOf(id);
      this.writable = bulkhead.writableOf(end);
    }
    async write(data) { await this.writable.write(data); }
    async end(data) { await this.writable.end(data); }
    [Symbol.asyncIterator]() { return this.readable[Symbol.asyncIterator](); }
    close() {
      this.readable.destroy();
      this.writable.destroy();
    }
    async [Symbol.asyncDispose]() { this.close(); }
  }

  class Listener {
    #id;
    #close;
    #closed = new Promise((resolve) => { this.#close = () => resolve(null); });
    constructor({ id, port, path }) {
      this.#id = id;
      if (port !== null) this.port = port;
      if (path !== null) this.path = path;
    }
    async *[Symbol.asyncIterator]() {
      for (let next = await this.accept(); next !== null; next = await this.accept()) yield next;
    }
    async accept() {
      const accepted = await Promise.race([bulkhead.call('listenerAccept', this.#id), this.#closed]);
      return accepted === null ? null : new Connection(accepted);
    }
    close() {
      this.#close();
      bulkhead.native.listenerDrop(this.#id);
    }
    async [Symbol.asyncDispose]() { this.close(); }
  }

  const endpointOf = (endpoint) => {
    const { host = '127.0.0.1', port, path } = typeof endpoint === 'number' ? { port: endpoint } : endpoint;
    if (path !== undefined) return { path: String(path) };
    if (!Number.isInteger(port) || port < 0 || port > 65535) throw new RangeError(`a port was expected, not ${port}`);
    return { host, port };
  };

  class Host {
    #files = null;
    get fs() {
      this.#files ??= bulkhead.makeFs();
      return this.#files;
    }
    describe() { return bulkhead.native.hostDescribe(); }
    toString() { return this.describe(); }

    // Starts a process. Nothing is inherited: its environment is `env`, and the host's `HOME` and the like.
    async spawn(command, args, options) {
      if (Array.isArray(command)) [args, options] = [undefined, args];
      else if (args !== undefined && !Array.isArray(args)) [args, options] = [undefined, args];
      const { cwd, env = {}, stdin = 'null', stdout = 'pipe', stderr = 'pipe', terminal, signal } = options ?? {};
      signal?.throwIfAborted();
      const started = await bulkhead.call('spawn', {
        argv: commandOf(command, args),
        cwd: cwd === undefined || cwd === null ? null : String(cwd),
        env: Object.entries(env).filter(([, value]) => value !== undefined).map(([name, value]) => [name, String(value)]),
        streams: [stdin, stdout, stderr].map((stream) => stream === 'pipe'),
        terminal: terminal ? { columns: terminal.columns ?? 80, rows: terminal.rows ?? 24 } : null,
      });
      const child = new Process(started);
      signal?.addEventListener('abort', () => child.kill('SIGKILL', { group: true }).catch(() => {}), { once: true });
      return child;
    }

    // Runs a command to its end and gives its output. A command that fails is an error, unless `check` is false.
    async run(command, args, options) {
      if (args !== undefined && !Array.isArray(args)) [args, options] = [undefined, args];
      const { input, check = true, encoding = 'utf8', maxBuffer = 64 * 1024 * 1024, ...rest } = options ?? {};
      const child = await this.spawn(commandOf(command, args), {
        ...rest,
        stdin: input === undefined ? 'null' : 'pipe',
      });
      const collect = async (stream) => {
        const chunks = [];
        let size = 0;
        for await (const chunk of stream) {
          size += chunk.length;
          if (size > maxBuffer) {
            await child.kill('SIGKILL', { group: true });
            throw new RangeError(`the command printed more than ${maxBuffer} bytes`);
          }
          chunks.push(chunk);
        }
        const all = Buffer.concat(chunks);
        return encoding === 'buffer' ? all : all.toString(encoding);
      };
      // A program may end without reading all that it is given.
      const feed = input === undefined ? null : child.stdin.end(input).catch(() => {});
      const [stdout, stderr, end] = await Promise.all([collect(child.stdout), collect(child.stderr), child.wait(), feed]);
      const result = { stdout, stderr, code: end.code, signal: end.signal };
      if (!check || end.code === 0) return result;
      const how = end.signal === null ? `exited with code ${end.code}` : `was ended by ${end.signal}`;
      const said = String(stderr).trim().slice(-2000);
      throw Object.assign(new Failed(`${commandOf(command, args).join(' ')} ${how}${said ? `: ${said}` : ''}`), result);
    }

    // A line for /bin/sh.
    async shell(line, options) { return this.run(['/bin/sh', '-c', String(line)], undefined, options); }

    async connect(endpoint) { return new Connection(await bulkhead.call('connect', endpointOf(endpoint))); }
    async listen(endpoint) { return new Listener(await bulkhead.call('listen', endpointOf(endpoint))); }
  }

  bulkhead.Host = Host;
}
