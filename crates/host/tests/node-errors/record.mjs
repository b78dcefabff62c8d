// Performs every operation of `fs.promises` in every wrong situation (and the right ones) on the real Node that runs
// this, and prints what came of it as JSON. `$` in paths stands for the base directory.
//
//   node record.mjs BASE
import { execFileSync } from 'node:child_process';
import { promises as fs, constants } from 'node:fs';
import * as nodeFs from 'node:fs';
import { fileURLToPath } from 'node:url';

const base = process.argv[2];
const trees = fileURLToPath(new URL('trees.sh', import.meta.url));
const { COPYFILE_EXCL, F_OK, R_OK, W_OK, X_OK } = constants;

// Longer than a name, and than a path, may be; written as a word in what is recorded.
const TOO_LONG = { '%name%': 'n'.repeat(256), '%path%': 'd/'.repeat(2500) + 'x' };
const LONG = '$/tree/%name%';
const DEEP = '$/tree/%path%';
// Every situation of one path.
const PLACES = [
    '', '$/tree/missing', '$/tree/missing/x', '$/tree/file', '$/tree/file/', '$/tree/file/x', '$/tree/blank',
    '$/tree/dir', '$/tree/dir/', '$/tree/dir/.', '$/tree/dir/..', '$/tree/empty', '$/tree/full', '$/tree/link',
    '$/tree/link/', '$/tree/link/x', '$/tree/dirlink', '$/tree/dirlink/', '$/tree/dirlink/one', '$/tree/dangling',
    '$/tree/dangling/', '$/tree/loop', '$/tree/loop/x', LONG, LONG + '/x', DEEP, '$/tree/closed', '$/tree/closed/x',
    '$/tree/closed/new', '$/tree/locked', '$/tree/locked/x', '$/tree/locked/sub', '$/tree/locked/new', '$/tree/secret',
    '$/tree/fixed', '$/ro', '$/ro/file', '$/ro/dir', '$/ro/empty', '$/ro/link', '$/ro/new',
];
// Opening one of these waits for somebody at the other end, so only calls on the name get it.
const NAMES = [...PLACES, '$/tree/fifo'];
// Every situation of two paths.
const PAIRS = [
    ['$/tree/file', '$/tree/new'], ['$/tree/missing', '$/tree/new'], ['$/tree/file', '$/tree/missing/new'],
    ['$/tree/file', '$/tree/file'], ['$/tree/file', '$/tree/blank'], ['$/tree/file', '$/tree/dir'],
    ['$/tree/file', '$/tree/new/'], ['$/tree/file/', '$/tree/new'], ['$/tree/file', '$/tree/blank/new'],
    ['$/tree/file/x', '$/tree/new'], ['$/tree/dir', '$/tree/new'], ['$/tree/dir', '$/tree/new/'],
    ['$/tree/dir', '$/tree/file'], ['$/tree/dir', '$/tree/empty'], ['$/tree/dir', '$/tree/full'],
    ['$/tree/dir', '$/tree/dir/sub/new'], ['$/tree/dir/sub', '$/tree/dir'], ['$/tree/dir/.', '$/tree/new'],
    ['$/tree/dir/..', '$/tree/new'], ['$/tree/file', '$/tree/dir/..'], ['$/tree/link', '$/tree/new'],
    ['$/tree/dirlink', '$/tree/new'], ['$/tree/dangling', '$/tree/new'], ['$/tree/loop', '$/tree/new'],
    ['$/tree/loop/x', '$/tree/new'], ['$/tree/file', '$/tree/link'], ['$/tree/file', '$/tree/dirlink'],
    ['$/tree/file', '$/tree/dangling'], ['$/tree/file', '$/tree/loop'], ['$/tree/file', '$/tree/loop/x'],
    ['', '$/tree/new'], ['$/tree/file', ''], [LONG, '$/tree/new'], ['$/tree/file', LONG],
    ['$/tree/closed/x', '$/tree/new'], ['$/tree/file', '$/tree/closed/new'], ['$/tree/locked/x', '$/tree/new'],
    ['$/tree/locked/sub', '$/tree/new'], ['$/tree/file', '$/tree/locked/new'], ['$/tree/file', '$/tree/locked/x'],
    ['$/tree/secret', '$/tree/new'], ['$/tree/file', '$/tree/secret'], ['$/tree/file', '$/tree/fixed'],
    ['$/tree/fixed', '$/tree/new'], ['$/ro/file', '$/tree/new'], ['$/tree/file', '$/ro/new'],
    ['$/tree/file', '$/ro/file'], ['$/ro/file', '$/ro/new'], ['$/ro/missing', '$/tree/new'],
    ['$/tree/file', '$/other/new'], ['$/tree/dir', '$/other/new'], ['$/other', '$/tree/new'],
];

const kinds = [['isFile', 'file'], ['isDirectory', 'directory'], ['isSymbolicLink', 'symlink'], ['isFIFO', 'fifo'],
    ['isSocket', 'socket'], ['isCharacterDevice', 'character'], ['isBlockDevice', 'block']];
const kindOf = (stat) => kinds.find(([is]) => stat[is]())?.[1] ?? 'unknown';
const shown = (stat) => ({
    kind: kindOf(stat),
    permissions: stat.mode & 0o7777,
    ...(stat.isDirectory() ? {} : { size: stat.size }),
});
const hide = (path) => Object.entries(TOO_LONG)
    .reduce((text, [word, long]) => text.replaceAll(long, word), path.replaceAll(root(), '$/tree').replaceAll(base, '$'));
const sorted = (list) => list.map(String).sort();
const entries = (list) => list
    .map((entry) => `${kindOf(entry)} ${hide(entry.parentPath)} ${entry.name}`)
    .sort();
const own = () => [process.getuid(), process.getgid()];

// What a case does, given its arguments, and what of the answer is compared.
const operations = {
    readFile: async (path) => String(await fs.readFile(path)),
    writeFile: (path) => fs.writeFile(path, 'written'),
    writeFileWith: (path, flag) => fs.writeFile(path, 'written', { flag }),
    appendFile: (path) => fs.appendFile(path, 'more'),
    stat: async (path) => shown(await fs.stat(path)),
    lstat: async (path) => shown(await fs.lstat(path)),
    readdir: async (path) => sorted(await fs.readdir(path)),
    readdirWithFileTypes: async (path) => entries(await fs.readdir(path, { withFileTypes: true })),
    readdirRecursive: async (path) => sorted(await fs.readdir(path, { recursive: true })),
    readdirBoth: async (path) => entries(await fs.readdir(path, { recursive: true, withFileTypes: true })),
    opendir: async (path) => {
        const seen = [];
        for await (const entry of await fs.opendir(path)) seen.push(entry);
        return entries(seen);
    },
    mkdir: (path) => fs.mkdir(path),
    mkdirRecursive: async (path) => hide(await fs.mkdir(path, { recursive: true }) ?? 'nothing'),
    rmdir: (path) => fs.rmdir(path),
    unlink: (path) => fs.unlink(path),
    realpath: async (path) => hide(await fs.realpath(path)),
    readlink: async (path) => hide(await fs.readlink(path)),
    access: (path, mode) => fs.access(path, { F: F_OK, R: R_OK, W: W_OK, X: X_OK }[mode]),
    exists: async (path) => nodeFs.existsSync(path),
    rm: (path) => fs.rm(path),
    rmForce: (path) => fs.rm(path, { force: true }),
    rmRecursive: (path) => fs.rm(path, { recursive: true }),
    rmBoth: (path) => fs.rm(path, { recursive: true, force: true }),
    truncate: (path, size) => fs.truncate(path, size),
    mkdtemp: async (path) => hide(await fs.mkdtemp(path)).slice(0, -6),
    chmod: (path) => fs.chmod(path, 0o700),
    chown: (path) => fs.chown(path, ...own()),
    chownAway: (path) => fs.chown(path, 1, 1),
    lchown: (path) => fs.lchown(path, ...own()),
    utimes: (path) => fs.utimes(path, 1000, 2000),
    lutimes: (path) => fs.lutimes(path, 1000, 2000),
    watch: async (path) => {
        const watcher = nodeFs.watch(path);
        watcher.close();
    },
    open: async (path, flags) => (await fs.open(path, flags)).close(),
    rename: (from, to) => fs.rename(from, to),
    link: (from, to) => fs.link(from, to),
    symlink: (from, to) => fs.symlink(from, to),
    copyFile: (from, to) => fs.copyFile(from, to),
    copyFileExcl: (from, to) => fs.copyFile(from, to, COPYFILE_EXCL),
    cp: (from, to) => fs.cp(from, to),
    cpRecursive: (from, to) => fs.cp(from, to, { recursive: true }),
    cpStrict: (from, to) => fs.cp(from, to, { recursive: true, force: false, errorOnExist: true }),
    // On an open file: how it is opened, then what is done with it.
    handle: async (path, flags, what) => {
        const handle = await fs.open(path, flags);
        try {
            return await onHandle[what](handle);
        } finally {
            await handle.close();
        }
    },
};

const onHandle = {
    read: async (handle) => {
        const { bytesRead, buffer } = await handle.read(Buffer.alloc(16), 0, 16, null);
        return String(buffer.subarray(0, bytesRead));
    },
    readTwice: async (handle) => {
        const first = await handle.read(Buffer.alloc(3), 0, 3, null);
        const at = await handle.read(Buffer.alloc(3), 0, 3, 1);
        const second = await handle.read(Buffer.alloc(3), 0, 3, null);
        return [first, at, second].map(({ bytesRead, buffer }) => String(buffer.subarray(0, bytesRead))).join('|');
    },
    write: async (handle) => (await handle.write('written')).bytesWritten,
    writeTwice: async (handle) => {
        await handle.write('one');
        await handle.write('X', 0);
        await handle.write('two');
        await handle.sync();
    },
    readFile: async (handle) => {
        await handle.read(Buffer.alloc(2), 0, 2, null);
        return String(await handle.readFile());
    },
    writeFile: (handle) => handle.writeFile('all'),
    appendFile: (handle) => handle.appendFile('all'),
    stat: async (handle) => shown(await handle.stat()),
    truncate: (handle) => handle.truncate(3),
    grow: (handle) => handle.truncate(20),
    chmod: (handle) => handle.chmod(0o750),
    chown: (handle) => handle.chown(...own()),
    chownAway: (handle) => handle.chown(1, 1),
    utimes: (handle) => handle.utimes(1000, 2000),
    sync: (handle) => handle.sync(),
    datasync: (handle) => handle.datasync(),
};

const once = (op, places) => places.map((place) => [op, place]);
const each = (op, places, values) => values.flatMap((value) => places.map((place) => [op, place, value]));
const HANDLED = ['$/tree/file', '$/tree/dir', '$/tree/blank', '$/ro/file'];
const cases = [
    ...['stat', 'lstat', 'readlink', 'realpath', 'exists', 'chmod', 'chown', 'chownAway', 'lchown', 'utimes', 'lutimes',
        'unlink', 'rmdir', 'mkdir', 'mkdirRecursive', 'rm', 'rmForce', 'watch',
    ].flatMap((op) => once(op, NAMES))
        // Where a path is too long, what realpath says is the C library's own.
        .filter(([op, place]) => op !== 'realpath' || place !== DEEP),
    // Without the one that removes its own beginning, and the one where either of two names may fail first.
    ...['rmRecursive', 'rmBoth'].flatMap((op) => once(op, NAMES.filter((place) => !place.endsWith('/..') && place !== '$/tree/locked'))),
    ...each('access', NAMES, ['F', 'R', 'W', 'X']),
    ...['readFile', 'writeFile', 'appendFile', 'readdir', 'readdirWithFileTypes', 'readdirRecursive', 'readdirBoth',
        'opendir'].flatMap((op) => once(op, PLACES)),
    // An empty prefix means the working directory, which is another one on each host.
    ...once('mkdtemp', PLACES.slice(1)),
    ...each('truncate', PLACES, [3]),
    ...each('open', PLACES, ['r', 'r+', 'w', 'wx', 'w+', 'wx+', 'a', 'ax', 'a+', 'ax+', 'rs+', 'as']),
    ...each('writeFileWith', ['$/tree/file', '$/tree/missing', '$/tree/dir'], ['r', 'r+', 'w', 'wx', 'a', 'ax']),
    ...['r', 'r+', 'w', 'a', 'a+'].flatMap((flags) => Object.keys(onHandle)
        .flatMap((what) => HANDLED.map((place) => ['handle', place, flags, what]))),
    ...['rename', 'link', 'symlink', 'copyFile', 'copyFileExcl', 'cp', 'cpRecursive', 'cpStrict']
        .flatMap((op) => PAIRS.map((pair) => [op, ...pair])),
    // Copying what is not a file would wait for somebody to write into it, but for `cp`, which looks first.
    ...['rename', 'link', 'cp', 'cpRecursive'].map((op) => [op, '$/tree/fifo', '$/tree/new']),
];

// Operations that leave a tree as it was also where they succeed.
const HARMLESS = new Set(['readFile', 'stat', 'lstat', 'readdir', 'readdirWithFileTypes', 'readdirRecursive', 'readdirBoth',
    'opendir', 'realpath', 'readlink', 'access', 'exists', 'watch']);
// What a case left is compared too, for these names.
const LEFT = ['$/tree', '$/tree/file', '$/tree/new', '$/tree/blank', '$/tree/missing', '$/tree/dir', '$/tree/link',
    '$/tree/dangling', '$/tree/nowhere', '$/tree/full', '$/tree/empty'];

let tree = 0;
const root = () => `${base}/t${tree}`;
const AT_ONCE = 50;
const grow = () => {
    if (tree % AT_ONCE === 0) execFileSync('sh', [trees, base, String(tree + 1), String(tree + AT_ONCE)]);
    tree += 1;
};
const given = (text) => Object.entries(TOO_LONG)
    .reduce((text, [word, long]) => text.replaceAll(word, long), text.replaceAll('$/tree', root()).replaceAll('$', base));

function failure(error) {
    const { code, errno, syscall, path, dest, message } = error;
    const words = { code, errno, syscall, path, dest, message: message };
    for (const name of ['path', 'dest', 'message']) {
        if (typeof words[name] === 'string') words[name] = hide(words[name]);
    }
    return words;
}

// The names that a tree has; one of them, or none, before six more letters is what mkdtemp made.
const NAMED = ['', '.', '..', ...['one', 'two', 'sub', 'deep', 'three', 'inside', 'x', 'dir', 'empty', 'full', 'closed', 'locked',
    'file', 'blank', 'secret', 'fixed', 'link', 'dirlink', 'dangling', 'loop', 'fifo', 'missing', 'new', 'nowhere']];
const withoutRandom = (name) => !NAMED.includes(name) && NAMED.includes(name.slice(0, -6)) ? name.slice(0, -6) + 'XXXXXX' : name;

async function left() {
    const seen = {};
    for (const place of LEFT) {
        try {
            const stat = await fs.lstat(given(place));
            const text = stat.isFile() ? await fs.readFile(given(place), 'latin1').catch(() => 'unreadable') : undefined;
            const names = stat.isDirectory() ? sorted(await fs.readdir(given(place))).filter((name) => name !== 'new') : undefined;
            const target = stat.isSymbolicLink() ? hide(await fs.readlink(given(place))) : undefined;
            const plain = names?.map(withoutRandom).sort();
            seen[place] = [kindOf(stat), stat.mode & 0o7777, text ?? target ?? plain?.join(' ')];
        } catch (error) {
            seen[place] = [error.code];
        }
    }
    return seen;
}

process.umask(0o022);
process.chdir('/');
grow();
const fresh = JSON.stringify(await left());
const results = [];
for (const [op, ...args] of cases) {
    const found = tree;
    const paths = args.map((arg) => typeof arg === 'string' ? given(arg) : arg);
    const result = { op, args, tree: found };
    try {
        result.value = await operations[op](...paths) ?? null;
    } catch (error) {
        result.error = failure(error);
        if (op === 'mkdtemp') {
            const { path, message } = result.error;
            result.error.path = path.slice(0, -6) + 'XXXXXX';
            result.error.message = message.replace(path, result.error.path);
        }
    }
    if (!HARMLESS.has(op)) {
        const after = await left();
        const text = JSON.stringify(after);
        if (text !== fresh) result.left = Object.fromEntries(Object.entries(after).filter(([place, seen]) => JSON.stringify(seen) !== JSON.stringify(JSON.parse(fresh)[place])));
        if (!result.error || text !== fresh) grow();
    }
    await fs.rm(given('$/other/new'), { recursive: true, force: true });
    results.push(result);
}
const lines = results.map((result) => JSON.stringify(result)).join(',\n');
process.stdout.write(`{"node":"${process.version}","trees":${tree},"fresh":${fresh},"cases":[\n${lines}\n]}\n`);
