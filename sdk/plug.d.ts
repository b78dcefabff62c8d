/**
 * Types for authors of Bulkhead's plugs: docs/plugs.md says what each thing does.
 *
 * The globals of a plug (`console`, `fetch`, `URL`, `Buffer`, timers …) have the types of `@types/node` 26 or newer,
 * which has to be installed beside these; so has what `ctx.host.fs` is made of.
 */

import type * as fs from 'node:fs';
import type * as fsPromises from 'node:fs/promises';

/** What a plug's module exports by default. A function alone is its `onSession`. */
export type Plug<Config = unknown> = PlugHandlers<Config> | PlugHandlers<Config>['onSession'];

export interface PlugHandlers<Config = unknown> {
  /** Before the agent starts. What is returned runs when the session ends, however it ends. */
  onSession?(ctx: Context<Config>): Teardown | void | Promise<Teardown | void>;
  /** Each message between agent and runner, in both directions. Without a verdict it goes on as it is. */
  onMessage?(ctx: Context<Config>, message: Message): Verdict | void | Promise<Verdict | void>;
  /** Limits of this plug's handlers, in milliseconds, instead of the usual ones. */
  timeouts?: { onSession?: number; onMessage?: number; teardown?: number };
}

/** Undoes what the plug did. It is told how the session ended. */
export type Teardown = (ended: Ended) => unknown;

export type Ended =
  | { kind: 'finished'; code?: number; signal?: number; hostEnded?: true }
  | { kind: 'idle' }
  | { kind: 'cancelled' }
  /** The session goes on later: leave what is to outlive it. */
  | { kind: 'paused' };

export interface Context<Config = unknown> {
  /** This plug: its name in the session's configuration, its file on the runner, and that file's directory. */
  readonly plug: { readonly name: string; readonly file: string; readonly dir: string };
  /** What the session's configuration gives this plug. */
  readonly config: Config;
  readonly session: { readonly id: string; readonly dir: string | null; readonly resumed: boolean };
  /** The machine that the plugs before this one made. Having it does nothing; its first use connects it. */
  readonly host: Host;
  /** What the agent will be started with. Changes count in `onSession`. */
  readonly agent: Agent;
  /** Aborted when the session is to end early. */
  readonly signal: AbortSignal;
  readonly log: Log;
  /** Waits; rejects when `signal` is aborted, by default the session's. */
  sleep(ms: number, options?: { signal?: AbortSignal }): Promise<void>;
  /** Runs something at teardown; what was added last runs first. */
  defer(teardown: Teardown): void;
}

export interface Agent {
  /** The program and its arguments; `{prompt}` stands for the prompt. */
  argv: string[];
  /** The working directory on the innermost host; null is that host's own. */
  cwd: string | null;
  /** The whole environment: the agent inherits nothing. */
  env: Record<string, string | number | undefined>;
  /** Servers of the Model Context Protocol. */
  mcp: McpServer[];
}

export type McpServer =
  | { type: 'stdio'; name: string; command: string; args: string[]; env: Record<string, string> }
  | { type: 'http'; name: string; url: string; headers: Record<string, string> };

export interface Log {
  (...values: unknown[]): void;
  debug(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}

/** One line of the agent's protocol. */
export interface Message {
  readonly direction: 'toAgent' | 'fromAgent';
  readonly text: string;
  /** The line as JSON; null where it is none. Changing it changes nothing: return `{ change }`. */
  readonly json: any;
}

export type Verdict =
  /** Another line goes on instead. What is no text is written as JSON. */
  | { change: unknown }
  /** It goes nowhere. */
  | { drop: true }
  /** It goes nowhere, and this goes back to whoever sent it; an array is several lines. */
  | { answer: unknown };

/** A machine: processes, files and connections. */
export interface Host {
  readonly fs: HostFileSystem;
  /** What it is, in words. */
  describe(): string;
  /** Starts a process. It inherits nothing: its environment is `env`, and what the host sets for all. */
  spawn(command: readonly string[], options?: SpawnOptions): Promise<Process>;
  spawn(program: string, args?: readonly string[], options?: SpawnOptions): Promise<Process>;
  /** Runs a command to its end and gives its output. One that fails is an error, unless `check` is false. */
  run(command: readonly string[], options?: RunOptions & { encoding?: BufferEncoding }): Promise<Output<string>>;
  run(command: readonly string[], options: RunOptions & { encoding: 'buffer' }): Promise<Output<Buffer>>;
  run(program: string, args?: readonly string[], options?: RunOptions & { encoding?: BufferEncoding }): Promise<Output<string>>;
  run(program: string, args: readonly string[], options: RunOptions & { encoding: 'buffer' }): Promise<Output<Buffer>>;
  /** Runs a line for `/bin/sh`. */
  shell(line: string, options?: RunOptions & { encoding?: BufferEncoding }): Promise<Output<string>>;
  /** Connects from the runner to a port or socket of the host. */
  connect(to: Endpoint): Promise<Connection>;
  /** Listens on the host; connections come to the plug. Port 0 is any free one. */
  listen(at: Endpoint): Promise<Listener>;
}

export interface SpawnOptions {
  cwd?: string;
  env?: Record<string, string | number | undefined>;
  /** `null` (the default for stdin) is empty when read, and discards what is written. */
  stdin?: 'pipe' | 'null';
  stdout?: 'pipe' | 'null';
  stderr?: 'pipe' | 'null';
  /** One terminal for all three streams. */
  terminal?: { columns?: number; rows?: number };
  /** Kills the process, and what it started, when it is aborted. */
  signal?: AbortSignal;
}

export interface RunOptions extends Omit<SpawnOptions, 'stdin' | 'stdout' | 'stderr' | 'terminal'> {
  /** What the command reads. */
  input?: string | Uint8Array;
  /** Whether a command that fails is an error: yes, unless this is false. */
  check?: boolean;
  /** The most that each output may be, in bytes: 64 MiB. */
  maxBuffer?: number;
}

export interface Output<T> extends Exit {
  stdout: T;
  stderr: T;
}

/** How a process ended; one of the two is null. */
export interface Exit {
  code: number | null;
  signal: string | null;
}

/** What `run` and `shell` throw where a command fails. */
export interface CommandError extends Error, Output<string> {
  name: 'CommandError';
}

export type Signal = 'SIGHUP' | 'SIGINT' | 'SIGQUIT' | 'SIGUSR1' | 'SIGUSR2' | 'SIGTERM' | 'SIGSTOP' | 'SIGCONT' | 'SIGKILL';

export interface Process {
  readonly stdin: ByteWriter | null;
  readonly stdout: ByteReader | null;
  readonly stderr: ByteReader | null;
  readonly exitCode: number | null;
  readonly signalCode: string | null;
  readonly exited: Promise<Exit>;
  wait(): Promise<Exit>;
  /** Sends a signal: SIGTERM. With `group` what the process started gets it too. */
  kill(signal?: Signal, options?: { group?: boolean }): Promise<void>;
  resize(columns: number, rows: number): Promise<void>;
  on(event: 'exit' | 'close', listener: (code: number | null, signal: string | null) => void): this;
  once(event: 'exit' | 'close', listener: (code: number | null, signal: string | null) => void): this;
}

/** A stream of bytes to read: once, in one of these ways. */
export interface ByteReader extends AsyncIterable<Buffer> {
  bytes(): Promise<Buffer>;
  text(): Promise<string>;
  json(): Promise<any>;
  /** Line by line, without their ends. */
  lines(): AsyncIterable<string>;
  /** Writes all that is left, as fast as it is taken. */
  pipeTo(to: ByteWriter, options?: { end?: boolean }): Promise<void>;
  /** The same as Node's: what goes wrong is an event. */
  pipe<T extends ByteWriter>(to: T, options?: { end?: boolean }): T;
  on(event: 'data', listener: (chunk: Buffer) => void): this;
  on(event: 'end' | 'close', listener: () => void): this;
  on(event: 'error', listener: (error: Error) => void): this;
  destroy(error?: Error): this;
}

/** A stream of bytes to write. Awaiting a write waits until whoever reads has taken it. */
export interface ByteWriter {
  write(data: string | Uint8Array): Promise<void>;
  end(data?: string | Uint8Array): Promise<void>;
  destroy(error?: Error): this;
}

/** A port alone is one on 127.0.0.1. Hosts are addresses: no name is looked up. */
export type Endpoint = number | { host?: string; port: number } | { path: string };

export interface Connection extends AsyncIterable<Buffer>, AsyncDisposable {
  readonly readable: ByteReader;
  readonly writable: ByteWriter;
  write(data: string | Uint8Array): Promise<void>;
  end(data?: string | Uint8Array): Promise<void>;
  close(): void;
}

export interface Listener extends AsyncIterable<Connection>, AsyncDisposable {
  readonly port?: number;
  readonly path?: string;
  /** Null when the listener was closed. */
  accept(): Promise<Connection | null>;
  close(): void;
}

/** Node's file system, on the host. Prefer `promises`: every synchronous method waits for the host's answer. */
export type HostFileSystem = Pick<typeof fs, SyncMethods | CallbackMethods | 'constants' | 'createReadStream' | 'createWriteStream' | 'openAsBlob' | 'watch' | 'watchFile' | 'unwatchFile'> & {
  readonly promises: Pick<typeof fsPromises, PromiseMethods>;
};

type SyncMethods =
  | 'accessSync' | 'appendFileSync' | 'chmodSync' | 'chownSync' | 'closeSync' | 'copyFileSync' | 'cpSync' | 'existsSync'
  | 'fchmodSync' | 'fchownSync' | 'fdatasyncSync' | 'fstatSync' | 'fsyncSync' | 'ftruncateSync' | 'futimesSync'
  | 'lchownSync' | 'linkSync' | 'lstatSync' | 'lutimesSync' | 'mkdirSync' | 'mkdtempSync' | 'opendirSync' | 'openSync'
  | 'readFileSync' | 'readSync' | 'readdirSync' | 'readlinkSync' | 'realpathSync' | 'renameSync' | 'rmSync' | 'rmdirSync'
  | 'statSync' | 'symlinkSync' | 'truncateSync' | 'unlinkSync' | 'utimesSync' | 'writeFileSync' | 'writeSync';

type CallbackMethods =
  | 'access' | 'appendFile' | 'chmod' | 'chown' | 'close' | 'copyFile' | 'cp' | 'exists' | 'fchmod' | 'fchown'
  | 'fdatasync' | 'fstat' | 'fsync' | 'ftruncate' | 'futimes' | 'lchown' | 'link' | 'lstat' | 'lutimes' | 'mkdir'
  | 'mkdtemp' | 'open' | 'opendir' | 'read' | 'readFile' | 'readdir' | 'readlink' | 'realpath' | 'rename' | 'rm'
  | 'rmdir' | 'stat' | 'symlink' | 'truncate' | 'unlink' | 'utimes' | 'write' | 'writeFile';

type PromiseMethods =
  | 'access' | 'appendFile' | 'chmod' | 'chown' | 'constants' | 'copyFile' | 'cp' | 'lchmod' | 'lchown' | 'link'
  | 'lstat' | 'lutimes' | 'mkdir' | 'mkdtemp' | 'open' | 'opendir' | 'readFile' | 'readdir' | 'readlink' | 'realpath'
  | 'rename' | 'rm' | 'rmdir' | 'stat' | 'symlink' | 'truncate' | 'unlink' | 'utimes' | 'watch' | 'writeFile';
