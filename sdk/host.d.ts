/**
 * Types for authors of Bulkhead's plugins: the global `host`, the only way out of a plugin. docs/plugins says what
 * there is beside it in the engine, and which values may cross.
 *
 * Calls that leave the plugin are promises; `host.log`, `host.settings.get` and `host.crypto` answer at once. A call
 * that comes to nothing is an `Error` with a `code`: see {@link HostError}.
 *
 * Units stand in the names: `Ms` are milliseconds (points in time count from 1970 in UTC), `Bytes` are bytes.
 */

/** What a call of `host` throws, or rejects its promise with. */
export interface HostError extends Error {
  code:
    /** The arguments are wrong; the message names the one. */
    | 'bad_request'
    /** An undeclared host or secret, or a permission that the manifest does not ask for. */
    | 'denied'
    /** A count, rate or size is used up. */
    | 'limit'
    | 'not_found'
    | 'timeout'
    /** It is not offered here, or who should answer did not. */
    | 'unavailable'
    /** It was tried, and failed. */
    | 'failed';
}

/** What may cross as data: docs/plugins/values.md. A property that is `undefined` is left out; a `Date` becomes text. */
export type Data = null | boolean | number | string | Date | readonly Data[] | { readonly [key: string]: Data | undefined };

/** Bytes, or a text, which is taken as UTF-8. */
export type BytesOrText = string | Uint8Array | ArrayBuffer;

export interface Host {
  readonly log: Log;
  readonly settings: Settings;
  fetch(url: string, init?: FetchInit): Promise<FetchResponse>;
  fetch(init: FetchInit & { url: string }): Promise<FetchResponse>;
  readonly crypto: Crypto;
  readonly session: Session;
  readonly agents: Agents;
  readonly models: { list(): Promise<Model[]> };
  readonly workspace: Workspace;
  /** Completions by the account's default model: 5 in one invocation. */
  readonly llm: { complete(request: CompletionRequest | string): Promise<Completion> };
  readonly decide: Decide;
  readonly media: Media;
  readonly ssh: { command(command: SshCommand | string): Promise<SshResult> };
  readonly connection: {
    /** 1 to 20 frames, 1 MiB in all: 20 calls in one invocation. Only in invocations of a live connection. */
    send(frames: ConnectionFrame | readonly ConnectionFrame[]): Promise<{ frames: number }>;
  };
}

/**
 * Words for the plugin's page: text as it is, data as JSON, errors by name and message. 256 lines and 256 KiB in one
 * invocation, 32 KiB in one line; what is beyond is left out, and a line says so.
 */
export interface Log {
  /** The same as `info`. */
  (...words: unknown[]): void;
  debug(...words: unknown[]): void;
  info(...words: unknown[]): void;
  warn(...words: unknown[]): void;
  error(...words: unknown[]): void;
}

export interface Settings {
  /** What the user set, or `undefined`. */
  get(name: string): any;
  /** All of it. */
  get(): { [name: string]: any };
  /** A secret that the manifest declares and the user has bound. It is hidden in logs and errors from then on. */
  getSecret(name: string): Promise<string>;
}

// ---- fetch: 60 requests in any minute for an installation, 10 s each, 5 MiB of answer

export type Encoding = 'utf8' | 'base64';

export interface FetchInit {
  method?: string;
  /** An object, or a list of pairs where one name comes several times. */
  headers?: { [name: string]: string } | readonly (readonly [string, string])[];
  body?: string;
  /** How `body` is written: as text, which is the usual, or as base64 of bytes. */
  bodyEncoding?: Encoding;
  /** How the body of the answer is to be written. */
  responseEncoding?: Encoding;
  /** `follow` where none is named. Each hop passes the same decision and counts as a request. */
  redirect?: 'follow' | 'manual' | 'error';
  timeoutMs?: number;
}

export interface FetchResponse {
  status: number;
  statusText: string;
  ok: boolean;
  /** After redirects. */
  url: string;
  redirected: boolean;
  /** Names are in small letters; a name that came several times has its values joined by commas. */
  headers: { [name: string]: string };
  setCookie: string[];
  body: string;
  bodyEncoding: Encoding;
}

// ---- crypto: 200 operations and 8 MiB of input in one invocation, 1 MiB in one call

export type HashAlgorithm = 'sha1' | 'sha256' | 'sha384' | 'sha512';

/** In which form bytes are given back. */
export type Form = 'bytes' | 'hex' | 'base64' | 'base64url' | 'utf8';
export type InForm<F extends Form> = F extends 'bytes' ? Uint8Array : string;

export interface Crypto {
  hash<F extends Form = 'hex'>(algorithm: HashAlgorithm, data: BytesOrText, form?: F): InForm<F>;
  /** The key must not be empty. */
  hmac<F extends Form = 'hex'>(algorithm: HashAlgorithm, key: BytesOrText, data: BytesOrText, form?: F): InForm<F>;
  /** With PKCS #7 padding. The key has 16, 24 or 32 bytes, `iv` 16. All that can be wrong with `data` is one error. */
  aesCbcDecrypt<F extends Form = 'bytes'>(key: Bytes, iv: Bytes, data: Bytes, form?: F): InForm<F>;
  /** The key: a seed of 32 bytes, or PKCS #8 as PEM or its bytes. */
  ed25519Sign<F extends Form = 'bytes'>(privateKey: Bytes | string, data: BytesOrText, form?: F): InForm<F>;
  /** The key: 32 bytes, or SPKI as PEM or its bytes. */
  ed25519Verify(publicKey: Bytes | string, signature: Bytes, data: BytesOrText): boolean;
  /**
   * A token signed with RS256, and nothing else, checked strictly: its signature, `exp`, `nbf`, `iat`, and the types of
   * all registered claims. The key: RSA of 2048 to 8192 bits, as PEM, its bytes (DER), or a JWK. Throws otherwise.
   */
  jwtVerify(token: string, key: Bytes | string | RsaJwk, options?: JwtOptions): { header: JwtPart; payload: JwtPart };
  /** Whether two are the same. Only their lengths show in the time that it takes. */
  timingSafeEqual(a: BytesOrText, b: BytesOrText): boolean;
  /** 0 to 65,536 bytes of the kernel's. */
  randomBytes<F extends Form = 'bytes'>(sizeBytes: number, form?: F): InForm<F>;
  /** Version 4. */
  randomUUID(): string;
  readonly base64: {
    encode(data: BytesOrText, alphabet?: 'standard' | 'url'): string;
    /** Strict: `standard` with its padding, `url` without. */
    decode<F extends Form = 'bytes'>(text: string, alphabet?: 'standard' | 'url', form?: F): InForm<F>;
  };
  readonly hex: {
    encode(data: BytesOrText): string;
    decode<F extends Form = 'bytes'>(text: string, form?: F): InForm<F>;
  };
}

export type Bytes = Uint8Array | ArrayBuffer;

export interface RsaJwk {
  kty: 'RSA';
  n: string;
  e: string;
  alg?: 'RS256';
  use?: 'sig';
  key_ops?: readonly string[];
  kid?: string;
}

export interface JwtOptions {
  /** What `iss` must be. */
  issuer?: string;
  /** What `aud` must be, or have among others. */
  audience?: string;
  /** How far the clocks may be apart: 0 where none is named, 600 at most. */
  clockToleranceSeconds?: number;
}

export type JwtPart = { [name: string]: any };

// ---- session: the chat that the invocation belongs to

export interface Session {
  info(): Promise<SessionInfo>;
  /** The newest messages, the oldest of them first. `limit`: 1 to 200, 50 where none is named. */
  messages(query?: { limit?: number; before?: string }): Promise<{ messages: ChatMessage[]; more: boolean }>;
  /** A message under the plugin's name: Markdown, 64 KiB at most; attachments are tokens of `host.media`, 10 at most. */
  post(message: { text?: string; attachments?: readonly string[] } | string): Promise<{ id: string }>;
  /** An error that the person sees. 5 in one invocation. */
  sendError(error: { message: string; detail?: string } | string): Promise<null>;
  readonly todos: {
    list(): Promise<Todo[]>;
    /** The whole list, in order; what is not in it is removed. */
    set(todos: readonly { id?: string; text: string; status?: TodoStatus }[]): Promise<Todo[]>;
  };
  readonly timers: {
    list(): Promise<Timer[]>;
    /** Wakes the plugin later with the lifecycle event `timer`. One of the same name is replaced. */
    set(timer: TimerToSet): Promise<Timer>;
    /** Whether there was such a timer. */
    cancel(name: string): Promise<boolean>;
  };
  /** Completions by the model of the chat's agent: 5 in one invocation, counted apart from `host.llm`. */
  readonly llm: { complete(request: CompletionRequest | string): Promise<Completion> };
}

export interface SessionInfo {
  id: string;
  agentId: string;
  title?: string;
  channel: string;
  locale?: string;
  timeZone?: string;
}

export interface ChatMessage {
  id: string;
  role: 'user' | 'assistant' | 'system' | 'tool';
  author?: string;
  text: string;
  createdAtMs: number;
  attachments: { name: string; mediaType: string; sizeBytes: number; token: string }[];
}

export type TodoStatus = 'pending' | 'in_progress' | 'completed';

export interface Todo {
  id: string;
  text: string;
  status: TodoStatus;
}

export type TimerToSet = {
  name: string;
  /** And again every so often: a minute to 366 days. */
  everyMs?: number;
  /** Given back with the event: 16 KiB of JSON at most. */
  data?: Data;
} & ({ atMs: number; afterMs?: undefined } | { afterMs: number; atMs?: undefined });

export interface Timer {
  name: string;
  /** When it fires next. */
  atMs: number;
  everyMs?: number;
  data?: any;
}

export interface CompletionRequest {
  /** Either this or `messages`. */
  prompt?: string;
  messages?: readonly { role: 'user' | 'assistant'; text: string }[];
  system?: string;
  /** An id of `host.models.list`. */
  model?: string;
  /** 1 to 32,000; 1,024 where none is named. */
  maxTokens?: number;
  temperature?: number;
  stop?: readonly string[];
  /** A JSON Schema: the answer is JSON of it, and `data` of the completion. */
  schema?: { [name: string]: any };
}

export interface Completion {
  text: string;
  /** Where a schema was given: the text, read. */
  data?: any;
  model: string;
  stopped: 'end' | 'output_tokens' | 'stop_sequence' | 'refused';
  inputTokens: number;
  outputTokens: number;
}

// ---- agents and models of the account

export interface Agents {
  list(): Promise<{ id: string; name: string; description?: string }[]>;
  /** Waits for the agent's answer: 25 s where none is named, 120 s at most, and the invocation's own limit besides. */
  ask(agentId: string, text: string, options?: { timeoutMs?: number }): Promise<{ text: string; sessionId: string }>;
  /** Does not wait for an answer. */
  send(agentId: string, text: string): Promise<{ id: string }>;
}

export interface Model {
  id: string;
  name: string;
  provider: string;
  contextTokens?: number;
  outputTokensMax?: number;
  readsImages: boolean;
  callsTools: boolean;
  isDefault: boolean;
}

// ---- workspace: files of the agent's workspace; paths are relative to it, without `.` and `..`

export interface Workspace {
  /** 5 MiB at most at once. What is no UTF-8 becomes U+FFFD, unless base64 is asked for. */
  read(path: string, options?: { encoding?: Encoding; offset?: number; length?: number }): Promise<FileContent>;
  /** `replace` where no mode is named: whole afterwards, and nobody sees half of it. */
  write(
    path: string,
    content: string,
    options?: { encoding?: Encoding; mode?: 'replace' | 'create' | 'append' },
  ): Promise<{ sizeBytes: number }>;
  list(path?: string, options?: { recursive?: boolean; limit?: number }): Promise<{ entries: Entry[]; more: boolean }>;
  stat(path: string): Promise<Entry>;
  /** Whether there was anything. A directory with something in it only where `recursive`. */
  remove(path: string, options?: { recursive?: boolean }): Promise<boolean>;
  move(from: string, to: string, options?: { overwrite?: boolean }): Promise<Entry>;
}

export interface FileContent {
  body: string;
  bodyEncoding: Encoding;
  /** The whole file's. */
  sizeBytes: number;
  modifiedAtMs?: number;
}

export interface Entry {
  path: string;
  kind: 'file' | 'directory' | 'link' | 'other';
  sizeBytes: number;
  modifiedAtMs?: number;
}

// ---- decide: the account's model decides; what is no answer is an error, never a guess

export interface Decide {
  noul(asked: Question | string): Promise<{ answer: 'yes' | 'no' | 'unknown'; reason?: string }>;
  choose(asked: Question & { options: readonly string[] }): Promise<{ answer: string; index: number; reason?: string }>;
  score(asked: Question & { min: number; max: number }): Promise<{ score: number; reason?: string }>;
}

export interface Question {
  question: string;
  context?: string;
}

// ---- media: 10 calls in one invocation; what a plugin holds are tokens

export interface Media {
  upload(file: { name: string; mediaType: string; body: string; bodyEncoding?: Encoding }): Promise<MediaInfo>;
  transcode(
    token: string,
    to: {
      mediaType: string;
      maxWidth?: number;
      maxHeight?: number;
      sampleRate?: number;
      channels?: number;
      bitRate?: number;
    },
  ): Promise<MediaInfo>;
  info(token: string): Promise<MediaInfo>;
}

export interface MediaInfo {
  token: string;
  name: string;
  mediaType: string;
  sizeBytes: number;
  durationMs?: number;
  width?: number;
  height?: number;
}

// ---- ssh: 10 commands in one invocation, in ssh hooks

export interface SshCommand {
  command: string;
  input?: string;
  inputEncoding?: Encoding;
  /** 60,000 where none is named, 90,000 at most. */
  timeoutMs?: number;
}

export interface SshResult {
  /** Null where a signal ended it. */
  exitCode: number | null;
  signal: string | null;
  stdout: string;
  stderr: string;
  stdoutCut: boolean;
  stderrCut: boolean;
  durationMs: number;
}

export type ConnectionFrame = string | { base64: string };

declare global {
  const host: Host;
}
