// Node's file system, on a host: `fs.promises`, the methods with callbacks, the synchronous twins, and streams.
'use strict';
{
  const { bulkhead } = globalThis;

  const constants = Object.freeze({ F_OK: 0, X_OK: 1, W_OK: 2, R_OK: 4, COPYFILE_EXCL: 1, COPYFILE_FICLONE: 2, COPYFILE_FICLONE_FORCE: 4, O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512, O_APPEND: 1024, S_IFMT: 0o170000, S_IFREG: 0o100000, S_IFDIR: 0o040000, S_IFCHR: 0o020000, S_IFBLK: 0o060000, S_IFIFO: 0o010000, S_IFLNK: 0o120000, S_IFSOCK: 0o140000 });

  const invalid = (kind, code, message) => Object.assign(new kind(message), { code });
  const wrongType = (name, what) => invalid(TypeError, 'ERR_INVALID_ARG_TYPE', `The "${name}" argument must be ${what}`);

  // A path is text, bytes, or a file: URL.
  const pathOf = (path, name = 'path') => {
    let given = path;
    if (given instanceof URL) given = bulkhead.pathOfUrl(given);
    if (typeof given === 'string') {
      if (given.includes('\0')) throw invalid(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument '${name}' must be a string, Uint8Array, or URL without null bytes.`);
      return given;
    }
    if (given instanceof Uint8Array) return given;
    throw wrongType(name, 'of type string or an instance of Buffer or URL.');
  };

  const optionsOf = (options, defaults = {}) => {
    if (options === undefined || options === null) return { ...defaults };
    if (typeof options === 'string') return { ...defaults, encoding: options };
    if (typeof options !== 'object') throw wrongType('options', 'of type string or an instance of Object.');
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    return { ...defaults, ...Object.fromEntries(given) };
  };

  const modeOf = (mode, otherwise) => {
    if (mode === undefined || mode === null) return otherwise;
    if (typeof mode === 'string' && !/^[0-7]+$/.test(mode)) throw invalid(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument 'mode' must be a 32-bit unsigned integer or an octal string. Received '${mode}'`);
    const number = typeof mode === 'string' ? Number.parseInt(mode, 8) : mode;
    if (!Number.isInteger(number) || number < 0 || number > 0xffffffff) throw invalid(RangeError, 'ERR_OUT_OF_RANGE', `The value of "mode" is out of range. Received ${mode}`);
    return number & 0o7777;
  };

  const numberOf = (value, name) => {
    if (typeof value !== 'number') throw wrongType(name, 'of type number.');
    return value;
  };

  const msOf = (time) => {
    const ms = time instanceof Date ? time.getTime() : Number(time) * 1000;
    if (!Number.isFinite(ms)) throw wrongType('time', 'a number of seconds or a Date.');
    return ms;
  };

  // Names come as text where they are text, and as bytes where they are not.
  const nameOf = (name, encoding) => {
    if (encoding === 'buffer') return typeof name === 'string' ? Buffer.from(name) : Buffer.view(name);
    const text = typeof name === 'string' ? name : new TextDecoder('utf-8', { ignoreBOM: true }).decode(name);
    return encoding && bulkhead.encodingOf(encoding) !== 'utf8' ? Buffer.from(name).toString(encoding) : text;
  };
  const encodingOf = (encoding) => {
    if (encoding !== undefined && encoding !== null && encoding !== 'buffer' && !Buffer.isEncoding(encoding)) throw invalid(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument 'encoding' is invalid encoding. Received '${encoding}'`);
    return encoding;
  };
  const contentOf = (bytes, encoding) => (encoding && encoding !== 'buffer' ? Buffer.view(bytes).toString(encoding) : Buffer.view(bytes));

  const KINDS = { file: constants.S_IFREG, directory: constants.S_IFDIR, symlink: constants.S_IFLNK, fifo: constants.S_IFIFO, socket: constants.S_IFSOCK, characterDevice: constants.S_IFCHR, blockDevice: constants.S_IFBLK };

  class Kinds {
    #kind;
    constructor(kind) { this.#kind = kind; }
    isFile() { return this.#kind === 'file'; }
    isDirectory() { return this.#kind === 'directory'; }
    isSymbolicLink() { return this.#kind === 'symlink'; }
    isFIFO() { return this.#kind === 'fifo'; }
    isSocket() { return this.#kind === 'socket'; }
    isCharacterDevice() { return this.#kind === 'characterDevice'; }
    isBlockDevice() { return this.#kind === 'blockDevice'; }
  }

  class Stats extends Kinds {
    #times;
    constructor(stat, big) {
      super(stat.kind);
      this.#times = stat;
      const number = (value) => (big ? BigInt(value) : Number(value));
      for (const name of ['dev', 'nlink', 'uid', 'gid', 'rdev', 'blksize', 'ino', 'size', 'blocks']) this[name] = number(stat[name]);
      this.mode = number((KINDS[stat.kind] ?? 0) | stat.permissions);
      for (const name of ['atime', 'mtime', 'ctime', 'birthtime']) {
        const ns = stat[name];
        this[`${name}Ms`] = big ? ns / 1000000n : Number(ns) / 1e6;
        if (big) this[`${name}Ns`] = ns;
      }
    }
    static timesOf(stats) { return stats.#times; }
  }
  for (const name of ['atime', 'mtime', 'ctime', 'birthtime']) {
    Object.defineProperty(Stats.prototype, name, {
      get() { return new Date(Math.round(Number(Stats.timesOf(this)[name]) / 1e6)); },
      configurable: true,
    });
    Object.defineProperty(Stats.prototype, `${name}Instant`, {
      get() { return Temporal.Instant.fromEpochNanoseconds(Stats.timesOf(this)[name]); },
      configurable: true,
    });
  }
  class BigIntStats extends Stats {}
  const statsOf = (stat, options) => (options?.bigint ? new BigIntStats(stat, true) : new Stats(stat, false));

  class Dirent extends Kinds {
    constructor([name, parent, kind], encoding) {
      super(kind);
      this.name = nameOf(name, encoding);
      this.parentPath = nameOf(parent, encoding === 'buffer' ? undefined : encoding);
    }
    get path() { return this.parentPath; }
  }

  // Every operation, written once for all three ways of calling it: what the host is asked, and what becomes of its
  // answer. `then` gets the answer and the options.
  const ask = (...request) => ({ request, then: (answer) => answer });
  const asking = (request, then) => ({ request, then });

  const listing = (path, options) => {
    const { encoding, withFileTypes = false, recursive = false } = optionsOf(options);
    const kind = withFileTypes ? 'entries' : 'names';
    return asking(['readdir', pathOf(path), kind, Boolean(recursive)], (list) => list.map((item) => (withFileTypes ? new Dirent(item, encoding) : nameOf(item, encoding))));
  };

  const operations = {
    readFile: (path, options) => {
      const { encoding, flag = 'r' } = optionsOf(options);
      encodingOf(encoding);
      return asking(['readFile', pathOf(path), flag], (bytes) => contentOf(bytes, encoding));
    },
    writeFile: (path, data, options) => {
      const { encoding, mode, flag = 'w', flush = false } = optionsOf(options);
      return ask('writeFile', pathOf(path), bulkhead.toBytes(data, encoding), flag, modeOf(mode, 0o666), Boolean(flush));
    },
    appendFile: (path, data, options) => operations.writeFile(path, data, { flag: 'a', ...optionsOf(options) }),
    stat: (path, options) => asking(['stat', pathOf(path)], (stat) => statsOf(stat, options)),
    lstat: (path, options) => asking(['lstat', pathOf(path)], (stat) => statsOf(stat, options)),
    readdir: listing,
    mkdir: (path, options) => {
      const { recursive = false, mode } = typeof options === 'number' || typeof options === 'string' ? { mode: options } : optionsOf(options);
      return asking(['mkdir', pathOf(path), Boolean(recursive), modeOf(mode, 0o777)], (first) => (first === null ? undefined : nameOf(first)));
    },
    rmdir: (path) => ask('rmdir', pathOf(path)),
    unlink: (path) => ask('unlink', pathOf(path)),
    rename: (from, to) => ask('rename', pathOf(from, 'oldPath'), pathOf(to, 'newPath')),
    copyFile: (from, to, mode = 0) => ask('copyFile', pathOf(from, 'src'), pathOf(to, 'dest'), (mode & constants.COPYFILE_EXCL) !== 0),
    cp: (from, to, options) => {
      const { recursive = false, force = true, errorOnExist = false, dereference = false, verbatimSymlinks = false, preserveTimestamps = false, filter } = optionsOf(options);
      if (filter !== undefined) throw invalid(TypeError, 'ERR_INVALID_ARG_VALUE', 'cp of a host takes no filter: copy what is wanted piece by piece');
      const existing = force ? 'overwrite' : errorOnExist ? 'refuse' : 'keep';
      const links = dereference ? 'follow' : verbatimSymlinks ? 'verbatim' : 'resolve';
      return ask('cp', pathOf(from, 'src'), pathOf(to, 'dest'), { recursive: Boolean(recursive), existing, links, preserveTimestamps: Boolean(preserveTimestamps) });
    },
    realpath: (path, options) => asking(['realpath', pathOf(path)], (name) => nameOf(name, optionsOf(options).encoding)),
    readlink: (path, options) => asking(['readlink', pathOf(path)], (name) => nameOf(name, optionsOf(options).encoding)),
    symlink: (target, path) => ask('symlink', pathOf(target, 'target'), pathOf(path)),
    link: (existing, path) => ask('link', pathOf(existing, 'existingPath'), pathOf(path, 'newPath')),
    access: (path, mode = constants.F_OK) => ask('access', pathOf(path), numberOf(mode, 'mode')),
    rm: (path, options) => {
      const { recursive = false, force = false, maxRetries = 0, retryDelay = 100 } = optionsOf(options);
      return ask('rm', pathOf(path), Boolean(recursive), Boolean(force), maxRetries, retryDelay);
    },
    truncate: (path, len = 0) => ask('truncate', pathOf(path), Math.max(0, numberOf(len ?? 0, 'len'))),
    mkdtemp: (prefix, options) => asking(['mkdtemp', pathOf(prefix, 'prefix')], (name) => nameOf(name, optionsOf(options).encoding)),
    chmod: (path, mode) => ask('chmod', pathOf(path), modeOf(mode)),
    lchmod: () => { throw invalid(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The lchmod() method is not implemented'); },
    chown: (path, uid, gid) => ask('chown', pathOf(path), numberOf(uid, 'uid'), numberOf(gid, 'gid')),
    lchown: (path, uid, gid) => ask('lchown', pathOf(path), numberOf(uid, 'uid'), numberOf(gid, 'gid')),
    utimes: (path, atime, mtime) => ask('utimes', pathOf(path), msOf(atime), msOf(mtime)),
    lutimes: (path, atime, mtime) => ask('lutimes', pathOf(path), msOf(atime), msOf(mtime)),
  };

  // The operations on an open file, by its number.
  const FLAG_WORDS = new Map([[0, 'r'], [2, 'r+'], [1 | 64 | 512, 'w'], [2 | 64 | 512, 'w+'], [1 | 64 | 1024, 'a'], [2 | 64 | 1024, 'a+'], [1 | 64 | 512 | 128, 'wx'], [2 | 64 | 512 | 128, 'wx+'], [1 | 64 | 1024 | 128, 'ax'], [2 | 64 | 1024 | 128, 'ax+']]);
  const flagsOf = (flags) => {
    if (flags === undefined || flags === null) return 'r';
    const word = typeof flags === 'number' ? FLAG_WORDS.get(flags) : String(flags);
    if (word === undefined) throw invalid(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument 'flags' is invalid. Received ${flags}`);
    return word;
  };

  // The place in a buffer that `read` and `write` mean, in all the forms that Node takes.
  const partOf = (buffer, offset, length, position) => {
    const [from, len, at] = offset !== null && typeof offset === 'object' ? [offset.offset, offset.length, offset.position] : [offset, length, position];
    const start = from ?? 0;
    const size = len ?? buffer.byteLength - start;
    if (start < 0 || size < 0 || start + size > buffer.byteLength) throw invalid(RangeError, 'ERR_OUT_OF_RANGE', 'the part is outside of the buffer');
    return { view: bulkhead.toBytes(buffer).subarray(start, start + size), position: at === undefined || at === null || Number(at) < 0 ? null : Number(at) };
  };

  const fileOperations = {
    read: (fd, buffer, offset, length, position) => {
      const part = partOf(buffer, offset, length, position);
      return asking(['fileRead', fd, part.view.length, part.position], (bytes) => {
        part.view.set(bytes);
        return bytes.length;
      });
    },
    write: (fd, data, offset, length, position) => {
      if (typeof data === 'string') return ask('fileWrite', fd, bulkhead.toBytes(data, length), typeof offset === 'number' ? offset : null);
      const part = partOf(data, offset, length, position);
      return ask('fileWrite', fd, part.view, part.position);
    },
    stat: (fd, options) => asking(['fileStat', fd], (stat) => statsOf(stat, options)),
    truncate: (fd, len = 0) => ask('fileTruncate', fd, Math.max(0, len ?? 0)),
    chmod: (fd, mode) => ask('fileChmod', fd, modeOf(mode)),
    chown: (fd, uid, gid) => ask('fileChown', fd, numberOf(uid, 'uid'), numberOf(gid, 'gid')),
    utimes: (fd, atime, mtime) => ask('fileUtimes', fd, msOf(atime), msOf(mtime)),
    sync: (fd) => ask('fileSync', fd),
    datasync: (fd) => ask('fileDatasync', fd),
    close: (fd) => ask('fileClose', fd),
  };

  const opening = (path, flags, mode) => ask('open', pathOf(path), flagsOf(flags), modeOf(mode, 0o666));

  // Where an operation is asked for from, its error is made anew, so that it names the plug's line.
  const later = async (make) => {
    const { request, then } = make();
    return then(await bulkhead.call('fs', ...request));
  };
  const atOnce = (make) => {
    const { request, then } = make();
    return then(bulkhead.native.fsSync(...request));
  };

  const writeAll = async (fd, data, encoding) => {
    const bytes = bulkhead.toBytes(data, encoding);
    let at = 0;
    do {
      at += await later(() => ask('fileWrite', fd, bytes.subarray(at, at + bulkhead.CHUNK * 8), null));
    } while (at < bytes.length);
  };

  class FileHandle extends bulkhead.EventEmitter {
    #fd;
    #closing = null;
    constructor(fd) {
      super();
      this.#fd = fd;
    }
    get fd() { return this.#closing ? -1 : this.#fd; }
    #on(name, ...args) {
      if (this.#closing) return Promise.reject(Object.assign(new Error('file closed'), { code: 'EBADF', errno: -9, syscall: name }));
      return later(() => fileOperations[name](this.#fd, ...args));
    }
    async read(buffer, offset, length, position) {
      const isBuffer = ArrayBuffer.isView(buffer);
      const options = isBuffer ? undefined : (buffer ?? {});
      const target = isBuffer ? buffer : (options.buffer ?? Buffer.alloc(16384));
      const bytesRead = isBuffer ? await this.#on('read', target, offset, length, position) : await this.#on('read', target, options);
      return { bytesRead, buffer: target };
    }
    async write(data, offset, length, position) {
      return { bytesWritten: await this.#on('write', data, offset, length, position), buffer: data };
    }
    async readv(buffers, position) {
      let bytesRead = 0;
      for (const buffer of buffers) {
        const at = typeof position === 'number' ? position + bytesRead : null;
        const read = await this.#on('read', buffer, 0, buffer.byteLength, at);
        bytesRead += read;
        if (read < buffer.byteLength) break;
      }
      return { bytesRead, buffers };
    }
    async writev(buffers, position) {
      let bytesWritten = 0;
      for (const buffer of buffers) {
        const at = typeof position === 'number' ? position + bytesWritten : null;
        bytesWritten += await this.#on('write', buffer, 0, buffer.byteLength, at);
      }
      return { bytesWritten, buffers };
    }
    async readFile(options) {
      const chunks = [];
      const chunk = Buffer.alloc(bulkhead.CHUNK * 8);
      for (;;) {
        const read = await this.#on('read', chunk, 0, chunk.length, null);
        if (read === 0) return contentOf(Buffer.concat(chunks), optionsOf(options).encoding);
        chunks.push(Buffer.from(chunk.subarray(0, read)));
      }
    }
    async writeFile(data, options) {
      if (this.#closing) throw Object.assign(new Error('file closed'), { code: 'EBADF', errno: -9, syscall: 'write' });
      await writeAll(this.#fd, data, optionsOf(options).encoding);
    }
    async appendFile(data, options) { await this.writeFile(data, options); }
    stat(options) { return this.#on('stat', options); }
    truncate(len) { return this.#on('truncate', len); }
    chmod(mode) { return this.#on('chmod', mode); }
    chown(uid, gid) { return this.#on('chown', uid, gid); }
    utimes(atime, mtime) { return this.#on('utimes', atime, mtime); }
    sync() { return this.#on('sync'); }
    datasync() { return this.#on('datasync'); }
    createReadStream(options = {}) {
      let at = options.start ?? null;
      return new bulkhead.Readable(async () => {
        const left = options.end === undefined ? bulkhead.CHUNK : Math.min(bulkhead.CHUNK, options.end + 1 - (at ?? 0));
        if (left <= 0) return null;
        const bytes = await later(() => ask('fileRead', this.#fd, left, at));
        if (at !== null || options.end !== undefined) at = (at ?? 0) + bytes.length;
        return bytes.length ? bytes : null;
      }, () => (options.autoClose === false ? undefined : this.close()));
    }
    createWriteStream(options = {}) {
      let at = options.start ?? null;
      return new bulkhead.Writable(async (bytes) => {
        const written = await later(() => ask('fileWrite', this.#fd, bytes, at));
        if (at !== null) at += written;
      }, () => (options.autoClose === false ? undefined : this.close()));
    }
    async *readLines(options) { yield* this.createReadStream(options).lines(); }
    close() {
      this.#closing ??= later(() => fileOperations.close(this.#fd)).then(() => { this.emit('close'); });
      return this.#closing;
    }
    async [Symbol.asyncDispose]() { await this.close(); }
  }

  class Dir {
    #entries;
    #closed = false;
    constructor(path, entries) {
      this.path = path;
      this.#entries = entries;
    }
    #check() {
      if (this.#closed) throw invalid(Error, 'ERR_DIR_CLOSED', 'Directory handle was closed');
    }
    readSync() {
      this.#check();
      return this.#entries.shift() ?? null;
    }
    read(callback) {
      if (callback === undefined) return (async () => this.readSync())();
      queueMicrotask(() => callback(null, this.readSync()));
      return undefined;
    }
    closeSync() {
      this.#check();
      this.#closed = true;
    }
    close(callback) {
      if (callback === undefined) return (async () => this.closeSync())();
      this.closeSync();
      queueMicrotask(() => callback(null));
      return undefined;
    }
    async *entries() {
      try {
        for (let entry = this.readSync(); entry !== null; entry = this.readSync()) yield entry;
      } finally {
        this.#closed = true;
      }
    }
    [Symbol.asyncIterator]() { return this.entries(); }
    [Symbol.dispose]() { this.#closed = true; }
    async [Symbol.asyncDispose]() { this.#closed = true; }
  }
  const openDir = (path, options) => {
    const { encoding, recursive = false } = optionsOf(options);
    return asking(['opendir', pathOf(path), 'entries', Boolean(recursive)], (list) => new Dir(nameOf(pathOf(path)), list.map((item) => new Dirent(item, encoding))));
  };

  const watching = async function* watching(path, options) {
    const { encoding, signal } = optionsOf(options);
    signal?.throwIfAborted();
    const id = await later(() => ask('watch', pathOf(path)));
    const drop = () => bulkhead.native.watchDrop(id);
    signal?.addEventListener('abort', drop, { once: true });
    try {
      for (;;) {
        const change = await bulkhead.abortable(signal, bulkhead.call('watchNext', id));
        if (change === null) return;
        yield { eventType: change.kind, filename: nameOf(change.name, encoding) };
      }
    } finally {
      drop();
    }
  };

  class FSWatcher extends bulkhead.EventEmitter {
    #controller = new AbortController();
    constructor(path, options, listener) {
      super();
      if (listener) this.on('change', listener);
      const { signal } = optionsOf(options);
      signal?.addEventListener('abort', () => this.close(), { once: true });
      this.#follow(path, options);
    }
    async #follow(path, options) {
      try {
        for await (const { eventType, filename } of watching(path, { ...optionsOf(options), signal: this.#controller.signal })) {
          this.emit('change', eventType, filename);
        }
      } catch (error) {
        if (!this.#controller.signal.aborted) this.emit('error', error);
      }
      this.emit('close');
    }
    close() { this.#controller.abort(); }
    ref() { return this; }
    unref() { return this; }
  }

  // What a file that is not there looks like to those who watch it.
  const NOTHING = { kind: 'unknown', permissions: 0, uid: 0, gid: 0, size: 0n, dev: 0n, ino: 0n, nlink: 0n, rdev: 0n, blksize: 0n, blocks: 0n, atime: 0n, mtime: 0n, ctime: 0n, birthtime: 0n };

  // Looks again and again, which works on every host.
  class StatWatcher extends bulkhead.EventEmitter {
    #timer = null;
    #last = null;
    constructor(path, { interval = 5007, bigint = false } = {}) {
      super();
      const look = async () => {
        const stat = await operationOf('stat', path).catch(() => NOTHING);
        const before = this.#last;
        this.#last = stat;
        const changed = before === null ? stat === NOTHING : before.mtime !== stat.mtime || before.size !== stat.size || before.ino !== stat.ino;
        if (changed && this.#timer !== null) this.emit('change', statsOf(stat, { bigint }), statsOf(before ?? stat, { bigint }));
        if (this.#timer !== null) this.#timer = setTimeout(look, interval);
      };
      this.#timer = setTimeout(look, 0);
    }
    stop() {
      clearTimeout(this.#timer);
      this.#timer = null;
    }
    ref() { return this; }
    unref() { return this; }
  }
  const operationOf = (name, path) => bulkhead.call('fs', name, pathOf(path));

  // Bytes of a file that are read when they are asked for.
  const blobOf = async (path, { type = '' } = {}) => {
    const { size } = await later(() => operations.stat(path));
    const part = (from, to, kind) => new Blob([{ size: to - from, bytes: () => readStream(path, { start: from, end: to - 1 }).bytes() }], { type: kind });
    const blob = part(0, size, type);
    blob.slice = (from = 0, to = size, kind = '') => part(Math.min(from < 0 ? size + from : from, size), Math.min(to < 0 ? size + to : to, size), kind);
    return blob;
  };

  const readStream = (path, options) => {
    const { fd, start, end, encoding, highWaterMark = bulkhead.CHUNK, signal } = optionsOf(options);
    if (fd !== undefined && fd !== null) return (typeof fd === 'object' ? fd : new FileHandle(fd)).createReadStream(options);
    let id = null;
    const stream = new bulkhead.Readable(async () => {
      if (id === null) {
        id = await later(() => ask('openRead', pathOf(path), start ?? null, end === undefined || end === Infinity ? null : end, highWaterMark));
        stream.emit('open', id);
        stream.emit('ready');
      }
      const bytes = await bulkhead.call('streamRead', id, highWaterMark);
      if (bytes !== null) stream.bytesRead += bytes.length;
      return bytes;
    }, () => (id === null ? undefined : bulkhead.call('streamDrop', id)));
    stream.path = path;
    stream.bytesRead = 0;
    if (encoding) stream.setEncoding(encoding);
    signal?.addEventListener('abort', () => stream.destroy(signal.reason), { once: true });
    return stream;
  };

  const writeStream = (path, options) => {
    const { fd, start, flags = 'w', mode, flush = false, signal } = optionsOf(options);
    if (fd !== undefined && fd !== null) return (typeof fd === 'object' ? fd : new FileHandle(fd)).createWriteStream(options);
    let opened = null;
    const open = () => {
      opened ??= later(() => ask('openWrite', pathOf(path), flagsOf(flags), modeOf(mode, 0o666), start ?? null, Boolean(flush))).then((id) => {
        stream.emit('open', id);
        stream.emit('ready');
        return id;
      });
      return opened;
    };
    const stream = new bulkhead.Writable(async (bytes) => {
      await bulkhead.call('fileStreamWrite', await open(), bytes);
      stream.bytesWritten += bytes.length;
    }, async () => bulkhead.call('fileStreamEnd', await open()));
    stream.path = path;
    stream.bytesWritten = 0;
    signal?.addEventListener('abort', () => stream.destroy(signal.reason), { once: true });
    return stream;
  };

  const existsAtOnce = (path) => {
    try {
      atOnce(() => operations.access(path));
      return true;
    } catch {
      return false;
    }
  };

  // The last argument is the callback, and options before it may be left out.
  const withCallback = (start, spread = (value) => [value]) => (...args) => {
    const at = args.findLastIndex((arg) => typeof arg === 'function');
    if (at < 0) throw invalid(TypeError, 'ERR_INVALID_ARG_TYPE', 'The "cb" argument must be of type function.');
    const callback = args[at];
    const call = (...outcome) => queueMicrotask(() => callback(...outcome));
    start(...args.slice(0, at)).then((value) => call(null, ...(value === undefined ? [] : spread(value))), (error) => call(error));
  };

  bulkhead.makeFs = () => {
    const promises = { constants };
    const fs = { promises, constants, Stats, Dirent, Dir };
    const watched = new Map();
    for (const [name, make] of Object.entries(operations)) {
      promises[name] = (...args) => later(() => make(...args));
      // Node has neither of these two beside the promises.
      if (name === 'lchmod') continue;
      fs[name] = withCallback(promises[name]);
      fs[`${name}Sync`] = (...args) => atOnce(() => make(...args));
    }
    const onHandle = (name) => (file, ...args) => (file instanceof FileHandle ? file[name](...args) : promises[name](file, ...args));
    for (const name of ['readFile', 'writeFile', 'appendFile']) {
      const byPath = promises[name];
      promises[name] = async (file, ...args) => {
        args.find((arg) => arg?.signal)?.signal.throwIfAborted();
        return file instanceof FileHandle ? onHandle(name)(file, ...args) : byPath(file, ...args);
      };
    }
    for (const name of ['stat', 'lstat']) {
      const byPath = fs[`${name}Sync`];
      fs[`${name}Sync`] = (path, options) => {
        try {
          return byPath(path, options);
        } catch (error) {
          if (options?.throwIfNoEntry === false && error.code === 'ENOENT') return undefined;
          throw error;
        }
      };
    }
    promises.open = async (path, flags, mode) => new FileHandle(await later(() => opening(path, flags, mode)));
    promises.opendir = (path, options) => later(() => openDir(path, options));
    promises.watch = watching;
    const open = (path, flags, mode) => later(() => opening(path, flags, mode));
    Object.assign(fs, {
      open: withCallback(open),
      openSync: (path, flags, mode) => atOnce(() => opening(path, flags, mode)),
      opendir: withCallback(promises.opendir),
      opendirSync: (path, options) => atOnce(() => openDir(path, options)),
      exists: (path, callback) => { promises.access(path).then(() => callback(true), () => callback(false)); },
      existsSync: existsAtOnce,
      createReadStream: readStream,
      createWriteStream: writeStream,
      openAsBlob: blobOf,
      watchFile: (path, options, listener) => {
        const [settings, call] = typeof options === 'function' ? [{}, options] : [options, listener];
        const key = String(path);
        const watcher = watched.get(key) ?? new StatWatcher(path, settings);
        watched.set(key, watcher);
        return watcher.on('change', call);
      },
      unwatchFile: (path, listener) => {
        const watcher = watched.get(String(path));
        if (listener) watcher?.off('change', listener);
        if (!watcher || (listener && watcher.listenerCount('change'))) return;
        watcher.stop();
        watched.delete(String(path));
      },
      watch: (path, options, listener) => (typeof options === 'function' ? new FSWatcher(path, {}, options) : new FSWatcher(path, options, listener)),
    });
    const descriptor = { read: 'read', write: 'write', close: 'close', fstat: 'stat', ftruncate: 'truncate', fchmod: 'chmod', fchown: 'chown', futimes: 'utimes', fsync: 'sync', fdatasync: 'datasync' };
    for (const [name, operation] of Object.entries(descriptor)) {
      const call = (fd, ...args) => later(() => fileOperations[operation](numberOf(fd, 'fd'), ...args));
      fs[name] = name === 'read' || name === 'write'
        ? (fd, data, ...args) => withCallback(call, (count) => [count, data])(fd, data, ...args)
        : withCallback(call);
      fs[`${name}Sync`] = (fd, ...args) => atOnce(() => fileOperations[operation](numberOf(fd, 'fd'), ...args));
    }
    return fs;
  };
}
