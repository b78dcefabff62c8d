//! H6, H9: what authors are told about `ctx` fits Node's own types, and what is told is there.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::Bench;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// TypeScript and Node's types, installed from npm by the committed lock file, once for all test runs.
fn compiler() -> PathBuf {
    let manifest = repository().join("sdk");
    let lock = fs::read_to_string(manifest.join("package-lock.json")).unwrap();
    let key = lock.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = home.join(format!(".cache/bulkhead-test-types/{key:016x}"));
    fs::create_dir_all(&dir).unwrap();
    // Several test processes may ask at once.
    let guard = File::create(dir.join(".lock")).unwrap();
    guard.lock().unwrap();
    if !dir.join(".installed").exists() {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(manifest.join(file), dir.join(file)).unwrap();
        }
        let output = Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(&dir)
            .output()
            .expect("npm is needed to install the TypeScript compiler: run scripts/setup test");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::write(dir.join(".installed"), "").unwrap();
    }
    dir.join("node_modules")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() && entry.file_name() != "node_modules" => {
                copy(&entry.path(), &target)
            }
            kind if kind.is_file() => drop(fs::copy(entry.path(), target).unwrap()),
            _ => {}
        }
    }
}

/// Compiles the types, their tests and the examples, with one file's text changed.
fn compile(file: &str, change: impl Fn(String) -> String) -> Output {
    compile_project("tsconfig.json", file, change)
}

fn compile_project(project: &str, file: &str, change: impl Fn(String) -> String) -> Output {
    let dir = tempfile::tempdir().unwrap();
    for part in ["sdk", "examples/plugs"] {
        copy(&repository().join(part), &dir.path().join(part));
    }
    let node_modules = compiler();
    std::os::unix::fs::symlink(&node_modules, dir.path().join("node_modules")).unwrap();
    let changed = dir.path().join(file);
    fs::write(&changed, change(fs::read_to_string(&changed).unwrap())).unwrap();
    Command::new(node_modules.join(".bin/tsc"))
        .args(["--pretty", "false", "--project", project])
        .current_dir(dir.path().join("sdk"))
        .output()
        .unwrap()
}

#[test]
fn h6_h9_the_types_fit_nodes_and_the_examples_compile() {
    let output = compile("sdk/plug.d.ts", |text| text);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// P12: the types of a plugin's `host` say what it has, and the language is ES2022 without anything around it.
#[test]
fn p12_the_types_of_host_compile_and_refuse_what_is_wrong() {
    let project = "tsconfig.plugin.json";
    let output = compile_project(project, "sdk/host.d.ts", |text| text);
    let errors = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{errors}");
    let output = compile_project(project, "sdk/tests/plugin/plugin.ts", |text| {
        text.replace("@ts-expect-error", "here")
    });
    let errors = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        errors.matches("tests/plugin/plugin.ts(").count(),
        9,
        "{errors}"
    );
}

#[test]
fn h6_wrong_types_are_errors() {
    let output = compile("sdk/tests/not-assignable.ts", |text| {
        text.replace("@ts-expect-error", "here")
    });
    let errors = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = errors
        .lines()
        .filter(|line| line.starts_with("tests/not-assignable.ts("))
        .count();
    assert_eq!(lines, 7, "{errors}");
    // What is assigned to Node's types would be an error, were it not so.
    let output = compile("sdk/plug.d.ts", |text| {
        text.replace("'readdir' | 'readlink'", "'readlink'")
    });
    let errors = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(errors.contains("tests/assignable.ts("), "{errors}");
}

/// The names in a union of the types' file.
fn names(types: &str, union: &str) -> Vec<String> {
    let start = types.find(&format!("type {union} =")).unwrap();
    let text = &types[start..start + types[start..].find(';').unwrap()];
    text.split('\'')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_every_method_that_the_types_name_is_there() {
    let types = fs::read_to_string(repository().join("sdk/plug.d.ts")).unwrap();
    let [sync, callbacks, promises] =
        ["SyncMethods", "CallbackMethods", "PromiseMethods"].map(|union| names(&types, union));
    assert!(sync.len() > 30 && callbacks.len() > 30 && promises.len() > 25);
    let body = format!(
        "const missing = (object, names) => names.filter((name) => typeof object[name] !== (name === 'constants' ? 'object' : 'function'));
         log(missing(fs, {sync:?}), missing(fs, {callbacks:?}), missing(fs.promises, {promises:?}), missing(fs, ['createReadStream', 'createWriteStream', 'openAsBlob', 'watch', 'watchFile', 'unwatchFile', 'constants']))"
    );
    assert_eq!(Bench::new().run(&body).await, ["mine: [] [] [] []"]);
}
