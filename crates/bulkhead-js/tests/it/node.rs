//! H9: what a plug's file system says to every call is what the real Node says.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use crate::Bench;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .canonicalize()
        .unwrap()
}

/// The Node that the hosts' file systems are compared with, by the same lock file; installed once for all test runs.
fn node() -> PathBuf {
    let manifest = here().join("../host/tests/node-errors");
    let lock = fs::read(manifest.join("package-lock.json")).unwrap();
    let key = lock.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = home.join(format!(".cache/bulkhead-test-node-{key:016x}"));
    fs::create_dir_all(&dir).unwrap();
    // Several test processes may ask at once.
    let guard = File::create(dir.join(".lock")).unwrap();
    guard.lock().unwrap();
    if !dir.join(".installed").exists() {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(manifest.join(file), dir.join(file)).unwrap();
        }
        let output = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&dir)
            .output()
            .expect("npm is needed to install Node: run scripts/setup test");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::write(dir.join(".installed"), "").unwrap();
    }
    let mut packages = fs::read_dir(dir.join("node_modules")).unwrap();
    packages
        .find_map(|package| {
            Some(package.unwrap().path().join("bin/node")).filter(|node| node.is_file())
        })
        .expect("npm has a Node for this kind of machine")
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_every_call_says_what_node_says() {
    let script = here().join("tests/node/same.mjs");
    let dir = tempfile::tempdir().unwrap();
    let code = format!(
        "import({:?}).then(async (same) => same.default(await import('node:fs'), console.log))",
        script.display().to_string()
    );
    let output = Command::new(node())
        .args(["--no-warnings", "-e", &code])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let nodes: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert!(nodes.len() > 150, "{}", nodes.len());

    let mut bench = Bench::new();
    let out = bench.dir.path().join("out");
    let plug = format!(
        "import same from {:?}
         export default async (ctx) => {{ const said = []; await same(ctx.host.fs, (line) => said.push(line)); ctx.host.fs.writeFileSync({out:?}, said.join('\\n')) }}",
        script.display().to_string()
    );
    let mut plug = bench.begin("plug.js", &plug).await.unwrap();
    bench.end(&mut *plug).await.unwrap();
    let ours = fs::read_to_string(&out).unwrap();
    let ours: Vec<&str> = ours.lines().collect();
    let differing: Vec<String> = nodes
        .iter()
        .zip(&ours)
        .filter(|(node, ours)| node != ours)
        .map(|(node, ours)| format!("node: {node}\nours: {ours}\n"))
        .collect();
    assert!(
        differing.is_empty(),
        "{} of {} differ:\n{}",
        differing.len(),
        nodes.len(),
        differing.join("\n")
    );
    assert_eq!(nodes.len(), ours.len());
}
