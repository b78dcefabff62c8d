// The same calls, on Node's own file system and on a host's: `tests/it/node.rs` compares what they say.
// Each line of `steps` is one call; `p` is `fs.promises`, `cb` makes a promise of a method with a callback.

const describe = (value) => {
  if (value === undefined) return 'undefined';
  if (value === null || typeof value === 'boolean' || typeof value === 'number' || typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (value instanceof Error) return describeError(value);
  if (value instanceof Uint8Array) return `${value.constructor.name} ${Buffer.from(value).toString('hex')}`;
  if (Array.isArray(value)) return `[${value.map(describe).join(', ')}]`;
  if (typeof value.isFile === 'function' && 'parentPath' in value) return `Dirent ${describe(value.name)} in ${describe(value.parentPath)} ${kind(value)}`;
  if (typeof value.isFile === 'function') return describeStats(value);
  return `{${Object.entries(value).map(([key, item]) => `${key}: ${describe(item)}`).join(', ')}}`;
};

const kind = (entry) => ['isFile', 'isDirectory', 'isSymbolicLink', 'isFIFO', 'isSocket', 'isBlockDevice', 'isCharacterDevice'].filter((name) => entry[name]()).join();

// What is the same on two file systems.
const describeStats = (stats) => {
  const types = Object.keys(stats).sort().map((name) => `${name}:${stats[name] instanceof Date ? 'Date' : typeof stats[name]}`);
  const size = stats.isFile() ? stats.size : '';
  return `Stats ${kind(stats)} ${size} ${stats.mode.toString(8)} ${stats.nlink} ${types.join()}`;
};

const describeError = (error) => {
  const { code, errno, syscall, path, dest } = error;
  const known = Object.entries({ code, errno, syscall, path, dest }).filter(([, value]) => value !== undefined);
  // Node's own refusals have long words of their own; the code is what counts.
  const words = String(code).startsWith('ERR_') ? '' : ` ${error.message}`;
  return `${error instanceof TypeError ? 'TypeError' : error instanceof RangeError ? 'RangeError' : 'Error'} ${known.map(([key, value]) => `${key}=${value}`).join(' ')}${words}`;
};

export default async function same(fs, log) {
  const p = fs.promises;
  const cb = (name, ...args) => new Promise((resolve, reject) => fs[name](...args, (error, ...values) => (error ? reject(error) : resolve(values.length > 1 ? values : values[0]))));
  const bytes = Buffer.from([0, 255, 10]);
  let fd;
  let handle;
  const steps = [
    () => p.writeFile('a', 'ä'), () => p.appendFile('a', bytes), () => p.readFile('a'), () => p.readFile('a', 'utf8'), () => p.readFile('a', { encoding: 'hex' }),
    () => fs.readFileSync('a', 'base64'), () => cb('readFile', 'a', 'latin1'), () => fs.writeFileSync('b', 'text', { mode: 0o600, flag: 'wx' }), () => fs.writeFileSync('b', 'x', { flag: 'wx' }),
    () => p.writeFile('b', new DataView(Uint8Array.of(1, 2, 3).buffer, 1)), () => p.readFile('b'), () => p.writeFile('c', 7), () => p.writeFile('c', 'ff', 'hex'), () => p.readFile('c'),
    () => p.readFile('missing'), () => fs.readFileSync('missing'), () => cb('readFile', 'missing'), () => p.readFile(''), () => p.readFile(7), () => fs.readFileSync(null), () => p.readFile('a\0b'), () => p.readFile('a', 'nonsense'), () => p.readFile('.'),
    () => p.mkdir('d'), () => p.mkdir('d'), () => fs.mkdirSync('d', { recursive: true }), () => p.mkdir('d/x/y', { recursive: true }), () => p.mkdir('missing/x'), () => p.mkdir('a/x', { recursive: true }), () => fs.mkdirSync('m', 0o700), () => fs.statSync('m'), () => cb('mkdir', 'n'), () => p.mkdir('o', { mode: 'nonsense' }),
    () => p.stat('a'), () => fs.statSync('d'), () => p.stat('a', { bigint: true }), () => p.stat('missing'), () => fs.statSync('missing', { throwIfNoEntry: false }), () => fs.lstatSync('a/x', { throwIfNoEntry: false }), () => cb('stat', 'a'),
    () => p.symlink('a', 'l'), () => p.symlink('a', 'l'), () => p.readlink('l'), () => fs.readlinkSync('l', 'buffer'), () => p.readlink('a'), () => p.lstat('l'), () => p.symlink('nowhere', 'broken'), () => p.stat('broken'), () => p.link('a', 'h'), () => p.link('missing', 'h2'), () => p.link('a', 'h'), () => fs.linkSync('a', 'h3'), () => p.symlink('loop', 'loop'), () => p.readFile('loop'),
    () => p.readdir('.'), () => p.readdir('.', { withFileTypes: true }), () => fs.readdirSync('d', { recursive: true }), () => p.readdir('d', { withFileTypes: true, recursive: true }), () => p.readdir('.', 'buffer'), () => fs.readdirSync('.', { withFileTypes: true, encoding: 'buffer' }), () => p.readdir('a'), () => p.readdir('missing'), () => cb('readdir', 'd'),
    () => p.rename('h', 'g'), () => p.rename('missing', 'x'), () => p.rename('a', 'd'), () => fs.renameSync('g', 'g2'), () => p.copyFile('a', 'copy'), () => p.copyFile('a', 'copy', fs.constants.COPYFILE_EXCL), () => p.copyFile('missing', 'x'), () => fs.copyFileSync('a', 'd'), () => cb('copyFile', 'a', 'copy2'),
    () => p.access('a'), () => p.access('a', fs.constants.R_OK | fs.constants.W_OK), () => p.access('missing'), () => fs.accessSync('a', fs.constants.X_OK), () => p.access('a', 'r'), () => fs.existsSync('a'), () => fs.existsSync('missing'), () => fs.existsSync({}), () => cb('access', 'missing'),
    () => p.chmod('a', 0o640), () => p.chmod('a', '600'), () => fs.chmodSync('missing', 0o600), () => p.chmod('a', -1), () => p.chmod('a', 'rw'), () => p.utimes('a', 1, 2), () => p.stat('a').then((s) => [s.atimeMs, s.mtimeMs, s.mtime.toISOString()]), () => fs.utimesSync('a', new Date(5), '7'), () => fs.lutimesSync('l', 3, 4), () => p.lstat('l').then((s) => s.mtimeMs), () => p.utimes('missing', 1, 1), () => p.truncate('copy', 1), () => p.readFile('copy'), () => fs.truncateSync('copy', 3), () => p.readFile('copy'), () => p.truncate('missing'), () => p.truncate('d'),
    () => p.realpath('d/..').then((path) => path === fs.realpathSync('.')), () => p.realpath('missing'), () => p.mkdtemp('t-').then((path) => [path.length, path.startsWith('t-')]), () => fs.mkdtempSync('missing/t-'),
    () => p.unlink('missing'), () => p.unlink('h3'), () => p.rmdir('a'), () => p.rmdir('missing'), () => p.rmdir('d'), () => fs.rmdirSync('m'), () => p.rm('missing'), () => p.rm('missing', { force: true }), () => p.rm('d'), () => fs.rmSync('d'), () => p.rm('d', { recursive: true }), () => cb('rm', 'missing'),
    () => p.cp('a', 'cp1'), () => p.cp('a', 'cp1', { force: false, errorOnExist: true }), () => p.mkdir('cpd/x', { recursive: true }), () => p.cp('cpd', 'cpd2'), () => p.cp('cpd', 'cpd2', { recursive: true }), () => p.readdir('cpd2'), () => fs.cpSync('missing', 'x'),
    () => { fd = fs.openSync('f', 'w+', 0o644); }, () => fs.writeSync(fd, 'hello'), () => fs.writeSync(fd, Buffer.from(' world'), 1, 3), () => fs.writeSync(fd, 'J', 0), () => { const b = Buffer.alloc(4); return [fs.readSync(fd, b, 0, 4, 1), b]; }, () => { const b = Buffer.alloc(4); return [fs.readSync(fd, b, { offset: 1, length: 2, position: 0 }), b]; }, () => fs.readSync(fd, Buffer.alloc(4), 3, 9, 0), () => fs.fstatSync(fd).size, () => fs.ftruncateSync(fd, 2), () => fs.fsyncSync(fd), () => fs.fdatasyncSync(fd), () => fs.futimesSync(fd, 1, 2), () => fs.fchmodSync(fd, 0o600), () => cb('fstat', fd).then((s) => s.size), () => cb('write', fd, 'zz', 5).then(([n]) => n), () => cb('read', fd, Buffer.alloc(9), 0, 9, 0).then(([n]) => n), () => fs.closeSync(fd), () => fs.closeSync(fd), () => fs.readSync(fd, Buffer.alloc(1)), () => p.readFile('f'), () => fs.openSync('missing'), () => fs.openSync('f', 'wx'), () => fs.openSync('f', 'nonsense'), () => fs.openSync('d/x/y/z', 'w'), () => cb('open', 'missing', 'r'),
    async () => { handle = await p.open('h', 'a+'); }, () => handle.write('abc'), () => handle.appendFile('d'), () => handle.readFile('utf8'), () => handle.read(Buffer.alloc(2), 0, 2, 1), () => handle.read({ buffer: Buffer.alloc(2), position: 0 }), () => handle.stat().then((s) => s.size), () => handle.truncate(1), () => handle.writev([Buffer.from('x'), Buffer.from('yz')]), () => handle.readv([Buffer.alloc(1), Buffer.alloc(9)], 0), () => handle.sync(), () => handle.datasync(), () => handle.chmod(0o600), () => handle.utimes(1, 2), () => p.readFile(handle).then(() => 'read'), () => handle.close(), () => handle.fd, () => p.readFile('h', 'utf8'), () => p.open('missing'), () => p.open('h', 'wx'),
    async () => { const names = []; for await (const entry of await p.opendir('.')) names.push(entry.name); return names.filter((name) => !name.startsWith('t-')).sort(); }, () => p.opendir('missing'), () => { const dir = fs.opendirSync('cpd'); const first = dir.readSync(); const end = dir.readSync(); dir.closeSync(); return [first, end]; },
    async () => { const chunks = []; for await (const chunk of fs.createReadStream('a', { highWaterMark: 2 })) chunks.push(chunk); return Buffer.concat(chunks); }, async () => { const chunks = []; for await (const chunk of fs.createReadStream('a', { start: 1, end: 2, encoding: 'hex' })) chunks.push(chunk); return chunks.join(''); }, async () => { for await (const chunk of fs.createReadStream('missing')) return chunk; },
    () => new Promise((done, fail) => { const out = fs.createWriteStream('w'); out.on('error', fail); out.write('one'); out.end('two', () => done(out.bytesWritten)); }), () => fs.readFileSync('w', 'utf8'), () => new Promise((done, fail) => { const out = fs.createWriteStream('w', { flags: 'r+', start: 1 }); out.on('finish', done).on('error', fail); out.end('NE'); }), () => fs.readFileSync('w', 'utf8'), () => new Promise((done) => { fs.createWriteStream('missing/w').on('error', done).end('x'); }), () => new Promise((done, fail) => { fs.createReadStream('w').on('error', fail).pipe(fs.createWriteStream('w2')).on('finish', done); }), () => fs.readFileSync('w2', 'utf8'),
    () => fs.readFile('a'), () => fs.stat('a', 'no callback'), () => p.lchmod('a', 0o600).catch((e) => e.code), () => fs.openAsBlob('w').then((blob) => blob.text()),
  ];
  for (const step of steps) {
    let said;
    try {
      said = describe(await step());
    } catch (error) {
      said = `threw ${describe(error)}`;
    }
    log(`${String(step).replace(/^(async )?\(\) => /, '').slice(0, 110)} ⇒ ${said}`);
  }
}
