//! H9: Node's file system on a host, as a plug calls it. What each operation does is the host's own conformance
//! suite; here it is what JavaScript makes of it.

use crate::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn h9_promises() {
    let said = Bench::new()
        .run(r#"const p = fs.promises; const enc = { encoding: 'utf8' };
            await p.writeFile('a.txt', 'ä'); await p.appendFile('a.txt', Buffer.from('b')); log(await p.readFile('a.txt', 'utf8'), (await p.readFile('a.txt')).length, (await p.readFile('a.txt')) instanceof Buffer);
            log(await p.mkdir('d/e/f', { recursive: true }), await p.mkdir('d/e/f', { recursive: true }));
            await p.copyFile('a.txt', 'd/a.txt'); await p.symlink('a.txt', 'l'); await p.link('a.txt', 'h'); await p.rename('h', 'g'); await p.chmod('g', 0o600);
            log((await p.readdir('.')).join(), (await p.readdir('.', { withFileTypes: true })).map((d) => d.name + (d.isDirectory() ? '/' : d.isSymbolicLink() ? '@' : '')).join(), (await p.readdir('d', { recursive: true })).join());
            const s = await p.stat('g'); log(s.isFile(), s.size, (s.mode & 0o777).toString(8), s.mtime instanceof Date, Math.abs(s.mtimeMs - Date.now()) < 60000, s.nlink);
            const big = await p.stat('g', { bigint: true }); log(typeof big.size, big.mtimeNs / 1000000n === big.mtimeMs);
            log((await p.lstat('l')).isSymbolicLink(), await p.readlink('l'), (await p.realpath('l')).endsWith('/a.txt'));
            await p.utimes('g', 5, new Date(7000)); const t = await p.stat('g'); log(t.atimeMs, t.mtime.getTime());
            await p.truncate('g', 1); log((await p.readFile('g')).length, (await p.mkdtemp('t-')).length);
            await p.rm('d', { recursive: true }); await p.rm('nothing', { force: true }); await p.unlink('g'); await p.access('a.txt', fs.constants.R_OK);
            await p.cp('a.txt', 'copy'); log((await p.readdir('.')).filter((n) => !n.startsWith('t-')).join())"#)
        .await;
    let expected = ["äb 3 true", "d/e undefined"];
    assert_eq!(said[0], format!("mine: {}", expected[0]));
    assert!(said[1].ends_with("undefined"), "{said:?}");
    let rest = [
        "a.txt,d,g,l a.txt,d/,g,l@ a.txt,e,e/f",
        "true 3 600 true true 2",
        "bigint true",
        "true a.txt true",
        "5000 7000",
        "1 8",
        "a.txt,copy,l",
    ];
    assert_eq!(said[2..], rest.map(|line| format!("mine: {line}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_errors_are_nodes() {
    let said = Bench::new()
        .run(r#"const fail = async (f) => { try { await f(); log('no error') } catch (e) { log(e instanceof Error, e.code, e.errno, e.syscall, e.path, e.message) } };
            await fail(() => fs.promises.readFile('/x/y')); await fail(() => fs.readFileSync('/x/y')); await fail(() => fs.promises.rmdir('/'));
            fs.mkdirSync('d'); fs.writeFileSync('d/f', ''); await fail(() => fs.promises.rmdir('d')); await fail(() => fs.promises.mkdir('d')); await fail(() => fs.promises.rename('x', 'y'));
            await fail(() => fs.promises.readFile({})); await fail(() => fs.promises.readFile('a\0b')); await fail(() => fs.promises.open('f', 'q'))"#)
        .await;
    let contains = [
        "true ENOENT -2 open /x/y ENOENT: no such file or directory, open '/x/y'",
        "true ENOENT -2 open /x/y ENOENT: no such file or directory, open '/x/y'",
        "rmdir",
        "true ENOTEMPTY -39 rmdir d ENOTEMPTY: directory not empty, rmdir 'd'",
        "true EEXIST -17 mkdir d EEXIST: file already exists, mkdir 'd'",
        "true ENOENT -2 rename x ENOENT: no such file or directory, rename 'x' -> 'y'",
        "ERR_INVALID_ARG_TYPE",
        "ERR_INVALID_ARG_VALUE",
        "ERR_INVALID_ARG_VALUE",
    ];
    assert_eq!(said.len(), contains.len(), "{said:#?}");
    for (line, words) in said.iter().zip(contains) {
        assert!(line.contains(words), "{words}: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_synchronous_twins_and_callbacks() {
    let said = Bench::new()
        .run(r#"fs.writeFileSync('a', 'abc'); log(fs.readFileSync('a', 'utf8'), fs.existsSync('a'), fs.existsSync('b'), fs.statSync('a').size, fs.statSync('b', { throwIfNoEntry: false }));
            const fd = fs.openSync('a', 'r+'); const b = Buffer.alloc(2); log(fs.readSync(fd, b, 0, 2, 1), b.toString(), fs.writeSync(fd, 'Z', 0), fs.fstatSync(fd).size); fs.ftruncateSync(fd, 2); fs.closeSync(fd); log(fs.readFileSync('a', 'latin1'));
            log(await new Promise((done) => fs.readFile('a', 'utf8', (e, text) => done(text))), await new Promise((done) => fs.readFile('nothing', (e) => done(e.code))), await new Promise((done) => fs.stat('a', (e, s) => done(s.size))));
            log(await new Promise((done) => fs.open('a', (e, fd) => fs.read(fd, Buffer.alloc(9), 0, 9, 0, (e, n, b) => fs.close(fd, () => done(n + b.toString('utf8', 0, n)))))));
            try { fs.readSync(fd, b) } catch (e) { log(e.code) }"#)
        .await;
    let expected = [
        "abc true false 3 undefined",
        "2 bc 1 3",
        "Zb",
        "Zb ENOENT 2",
        "2Zb",
        "EBADF",
    ];
    assert_eq!(said, expected.map(|line| format!("mine: {line}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_file_handles_streams_and_watchers() {
    let said = Bench::new()
        .run(r#"const p = fs.promises; const h = await p.open('a', 'w+'); await h.write('hello'); await h.write(Buffer.from(' world'), 0, 6, null); log((await h.read(Buffer.alloc(5), 0, 5, 6)).buffer.toString(), (await h.stat()).size); await h.truncate(5); await h.close(); log(await h.stat().catch((e) => e.code), await p.readFile('a', 'utf8'));
            const out = fs.createWriteStream('big'); for (let i = 0; i < 100; i++) await out.write(Buffer.alloc(100000, i)); await new Promise((done) => out.end(done)); log(out.bytesWritten, fs.statSync('big').size);
            let n = 0, sum = 0; for await (const c of fs.createReadStream('big')) { n += c.length; sum += c[0] >= 0 ? 1 : 0 } log(n, sum > 50);
            log(await fs.createReadStream('a', { start: 1, end: 3, encoding: 'utf8' }).text());
            await new Promise((done) => { const w = fs.createWriteStream('piped'); w.on('finish', done); fs.createReadStream('a').pipe(w) }); log(fs.readFileSync('piped', 'utf8'));
            const bad = fs.createReadStream('nothing'); log(await new Promise((done) => bad.on('error', (e) => done(e.code)).on('data', () => {})));
            const lines = []; const lh = await (await p.writeFile('lines', 'a\r\nb\n\nc'), p.open('lines')); for await (const l of lh.readLines()) lines.push(l); log(lines);
            const seen = (async () => { for await (const e of p.watch('.')) return e.eventType + ' ' + e.filename })(); await ctx.sleep(200); await p.writeFile('new', ''); log(await seen);
            const w = fs.watch('.'); const change = new Promise((done) => w.on('change', (type, name) => done(name))); await ctx.sleep(200); await p.unlink('new'); log(await change); w.close();
            for await (const d of await p.opendir('.')) { if (d.name === 'lines') log(d.isFile(), d.parentPath) }"#)
        .await;
    let expected = [
        "world 11",
        "EBADF hello",
        "10000000 10000000",
        "10000000 true",
        "ell",
        "hello",
        "ENOENT",
        "[ 'a', 'b', '', 'c' ]",
        "rename new",
        "new",
        "true .",
    ];
    assert_eq!(said, expected.map(|line| format!("mine: {line}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_names_that_are_no_text_stay_what_they_are() {
    let said = Bench::new()
        .run(r#"const name = Buffer.from([0x61, 0xff, 0x0a]); await fs.promises.writeFile(name, 'x');
            const [back] = await fs.promises.readdir('.', { encoding: 'buffer' }); log(back.equals(name), (await fs.promises.readFile(back, 'utf8')), JSON.stringify(await fs.promises.readdir('.')));
            await fs.promises.rm(back); await fs.promises.writeFile(' -x\'"\n', '1'); log(JSON.stringify(await fs.promises.readdir('.')));
            await fs.promises.writeFile(new URL('file:///' + (await fs.promises.realpath('.')) + '/ä%20b'), '2'); log(fs.existsSync('ä b'))"#)
        .await;
    let expected = ["true x [\"a\u{fffd}\\n\"]", "[\" -x'\\\"\\n\"]", "true"];
    assert_eq!(said, expected.map(|line| format!("mine: {line}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_blobs_watched_files_and_temporal() {
    let said = Bench::new()
        .run(r#"fs.writeFileSync('a', 'hello'); const blob = await fs.openAsBlob('a', { type: 'text/plain' }); log(blob.size, blob.type, await blob.text(), await blob.slice(1, 3).text(), (await blob.slice(-2).bytes()).length);
            log(await new Blob(['a', new Uint8Array([98])]).text());
            const changed = new Promise((done) => fs.watchFile('a', { interval: 50 }, (now, before) => done([now.size, before.size]))); await ctx.sleep(300); fs.appendFileSync('a', '!'); log(await changed); fs.unwatchFile('a');
            const s = fs.statSync('a'); log(Number(s.mtimeInstant.epochMilliseconds) === Math.floor(s.mtimeMs))"#)
        .await;
    let expected = ["5 text/plain hello el 2", "ab", "[ 6, 5 ]", "true"];
    assert_eq!(said, expected.map(|line| format!("mine: {line}")));
}
