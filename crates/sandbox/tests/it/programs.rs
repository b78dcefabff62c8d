//! R6, R8: Programs that people work with do their work inside, within the default limits: the walls are not in the way.
//!
//! A program that this machine does not have is left out; the test's output says so.

use std::path::{Path, PathBuf};

use bulkhead_sandbox::{Bind, Cause, ExitStatus, Limits, Plan, ProcessSpec, Workspace};

use crate::support::{id, place, say};

/// Runs a script in a sandbox with the default limits, and expects these last words of it.
async fn works(binds: &[&Path], path: &str, script: &str, words: &str) {
    let place = place().await;
    let plan = Plan {
        binds: binds.iter().map(Bind::same_path).collect(),
        ..Plan::new(id(), Limits::default(), Workspace::Image)
    };
    let sandbox = place.engine.create(plan).await.unwrap();
    let spec = ProcessSpec::new(["/bin/sh", "-ec", script]).env("PATH", path);
    let said = say(&sandbox, spec).await;
    sandbox.end(Cause::Finished(said.status)).await;
    assert_eq!(said.status, ExitStatus::Code(0), "{said:?}");
    assert!(said.stdout.trim_end().ends_with(words), "{said:?}");
}

const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Whether the machine has them all, where a sandbox sees them.
fn has(programs: &[&str]) -> bool {
    let is_there = |name: &&str| {
        let mut dirs = SYSTEM_PATH.split(':').map(|dir| Path::new(dir).join(name));
        dirs.any(|path| path.exists())
    };
    let all = programs.iter().all(is_there);
    if !all {
        eprintln!("left out: this machine has no {}", programs.join(" and "));
    }
    all
}

/// A server on loopback, a client, worker threads, a child process, a file watcher.
#[tokio::test]
async fn node_works() {
    if !has(&["node"]) {
        return;
    }
    let script = r#"cat > a.mjs <<'END'
import http from 'node:http';
import fs from 'node:fs';
import { once } from 'node:events';
import { execFileSync } from 'node:child_process';
import { Worker } from 'node:worker_threads';
const server = http.createServer((_, answer) => answer.end('served')).listen(0, '127.0.0.1');
await once(server, 'listening');
const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);
if (await answer.text() !== 'served') throw new Error('not served');
server.close(); server.closeAllConnections();
const workers = [1, 2, 3, 4].map(n => new Worker(`require('worker_threads').parentPort.postMessage(${n} * 2)`, { eval: true }));
const sums = await Promise.all(workers.map(async worker => (await once(worker, 'message'))[0]));
if (sums.reduce((a, b) => a + b) !== 20) throw new Error('wrong sum');
const watcher = fs.watch('.');
const changed = once(watcher, 'change');
fs.writeFileSync('b', execFileSync('echo', ['child']));
await changed;
watcher.close();
console.log(fs.readFileSync('b', 'utf8').trim() + ' done');
END
exec node a.mjs"#;
    works(&[], SYSTEM_PATH, script, "child done").await;
}

/// A pool of processes (semaphores in `/dev/shm`), threads, sockets, SQLite.
#[tokio::test]
async fn python_works() {
    if !Path::new("/usr/bin/python3").exists() {
        eprintln!("left out: this machine has no /usr/bin/python3");
        return;
    }
    let script = r#"cat > a.py <<'END'
import multiprocessing, socket, sqlite3, subprocess, tempfile, threading
def square(n): return n * n
if __name__ == "__main__":
    for way in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(way).Pool(4) as pool:
            assert sum(pool.map(square, range(100))) == 328350, way
    one, other = socket.socketpair()
    thread = threading.Thread(target=lambda: one.sendall(b"x")); thread.start(); thread.join()
    assert other.recv(1) == b"x"
    base = sqlite3.connect("a.db"); base.execute("pragma journal_mode=wal"); base.execute("create table t(a)")
    base.execute("insert into t values (1)"); base.commit()
    with tempfile.TemporaryDirectory() as where:
        subprocess.run(["sh", "-c", "echo child > a"], cwd=where, check=True)
    print("done")
END
exec /usr/bin/python3 a.py"#;
    works(&[], SYSTEM_PATH, script, "done").await;
}

/// Commits, a clone with hard links, packing, a worktree, a stash.
#[tokio::test]
async fn git_works() {
    if !has(&["git"]) {
        return;
    }
    let script = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q one; cd one; seq 10000 > a; git add a; git commit -qm first; echo b >> a; git stash -q; git stash pop -q
        git commit -qam second; git gc -q; git worktree add -q ../tree; cd ..; git clone -q one two; cd two; git fsck
        git rev-list --count HEAD";
    works(&[], SYSTEM_PATH, script, "2").await;
}

/// Compiles in parallel and links.
#[tokio::test]
async fn make_and_gcc_work() {
    if !has(&["make", "gcc"]) {
        return;
    }
    let script = r#"for n in 1 2 3 4; do echo "int f$n(void) { return $n; }" > f$n.c; done
        cat > main.c <<'END'
#include <stdio.h>
int f1(void); int f4(void); int main(void) { printf("%d\n", f1() + f4()); return 0; }
END
        printf 'main: main.o f1.o f2.o f3.o f4.o
	$(CC) -o $@ $^
' > Makefile
        make -s -j4 CC=gcc main; exec ./main"#;
    works(&[], SYSTEM_PATH, script, "5").await;
}

/// Compiles and runs a program; the machine's garbage collector and compiler threads start.
#[tokio::test]
async fn java_works() {
    if !has(&["java", "javac"]) {
        return;
    }
    let script = r#"echo 'public class A { public static void main(String[] a) throws Exception {
        var t = new Thread(() -> System.out.println("done")); t.start(); t.join(); } }' > A.java
        javac A.java; exec java A"#;
    works(&[], SYSTEM_PATH, script, "done").await;
}

/// Goroutines, a server on loopback, the race of building in parallel.
#[tokio::test]
async fn go_works() {
    let Some(root) = ["/usr/lib/go", "/usr/local/go"]
        .into_iter()
        .find(|dir| Path::new(dir).join("bin/go").exists())
    else {
        eprintln!("left out: this machine has no go");
        return;
    };
    let script = r#"echo 'package main
import "fmt"
func main() { c := make(chan string); go func() { c <- "done" }(); fmt.Println(<-c) }' > a.go; exec go run a.go"#;
    works(&[], &format!("{root}/bin:{SYSTEM_PATH}"), script, "done").await;
}

/// A toolchain outside `/usr`, bound read-only as `docs/sandbox.md` says: cargo builds and runs a new package.
#[tokio::test]
async fn cargo_works() {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    // Not all of `.cargo`: it may hold credentials.
    let (rustup, cargo) = (home.join(".rustup"), home.join(".cargo/bin"));
    if !has(&["cc"]) || !cargo.join("cargo").exists() || !rustup.join("toolchains").exists() {
        eprintln!("left out: this machine has no rustup in {}", home.display());
        return;
    }
    let script = format!(
        "export RUSTUP_HOME={} CARGO_HOME=$HOME/.cargo; cargo new -q a; cd a; cargo test -q --offline; cargo run -q --offline",
        rustup.display()
    );
    let path = format!("{}:{SYSTEM_PATH}", cargo.display());
    works(&[&rustup, &cargo], &path, &script, "Hello, world!").await;
}
