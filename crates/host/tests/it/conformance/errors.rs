//! H9: every operation of the file system in every wrong situation, and in the right ones, against what the real Node
//! answered for the same (`tests/node-errors`): code, number, system call, paths, message, the answer, what is left.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use bulkhead_host::{Command, FileKind, FileSystem, FsError};
use futures::{StreamExt as _, future::join_all};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::{
    Maker, Place,
    operations::{self, Owner},
    run,
};

const TREES: &str = include_str!("../../node-errors/trees.sh");
const AS_ROOT: &str = include_str!("../../node-errors/recorded/root.json");
const AS_OTHER: &str = include_str!("../../node-errors/recorded/user.json");
/// Differences that are printed.
const SHOWN: usize = 40;
/// Trees that are worked in at the same time: on a far host one case after the other would wait for the way most of the time.
const AT_ONCE: usize = 16;
/// What is looked at after a case.
const LEFT: [&str; 11] = [
    "$/tree",
    "$/tree/file",
    "$/tree/new",
    "$/tree/blank",
    "$/tree/missing",
    "$/tree/dir",
    "$/tree/link",
    "$/tree/dangling",
    "$/tree/nowhere",
    "$/tree/full",
    "$/tree/empty",
];

/// What Node said.
#[derive(Deserialize)]
struct Recorded {
    trees: u32,
    fresh: Map<String, Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    op: String,
    args: Vec<Value>,
    tree: u32,
    value: Option<Value>,
    error: Option<Value>,
    #[serde(default)]
    left: Map<String, Value>,
}

pub(crate) async fn section(maker: &impl Maker) {
    let place = Place::new(maker).await;
    // The rules on permissions do not hold for root.
    let recorded = match super::shell(&*place.host, "id -u").await.trim() {
        "0" => AS_ROOT,
        _ => AS_OTHER,
    };
    let recorded: Recorded = serde_json::from_str(recorded).unwrap();
    let trees = recorded.trees.to_string();
    let dir = place.dir.to_str().unwrap();
    let made = run(
        &*place.host,
        Command::new(["/bin/sh", "-c", TREES, "trees", dir, "1", &trees]),
    );
    assert!(made.await.status.success());
    let world = World {
        files: place.files.clone(),
        base: place.dir.clone(),
        read_only: maker.read_only(),
        other: maker.other_file_system(),
        other_is_used: Arc::default(),
        tree: 1,
        fresh: Arc::new(recorded.fresh),
        owner: Owner::of(&place.files.stat(&place.path("t1")).await.unwrap()),
        differences: Vec::new(),
    };
    let (done, differences) = world.check_all(&recorded.cases).await;
    let found = differences.len();
    let shown = differences.into_iter().take(SHOWN).collect::<Vec<_>>();
    assert!(
        found == 0,
        "{found} of {done} cases differ from Node:\n{}",
        shown.join("\n")
    );
    assert!(done > 2000, "only {done} cases were tried");
    let open = format!("chmod -R u+rwX '{dir}'");
    super::shell(&*place.host, &open).await;
    place.end().await;
}

/// A tree on the host, and the words for it in what is recorded.
#[derive(Clone)]
struct World {
    files: FileSystem,
    base: PathBuf,
    read_only: Option<PathBuf>,
    other: Option<PathBuf>,
    /// There is one place on the other file system, for all trees.
    other_is_used: Arc<Mutex<()>>,
    tree: u32,
    fresh: Arc<Map<String, Value>>,
    owner: Owner,
    differences: Vec<String>,
}

impl World {
    /// How many cases were tried, and what differs. Those of one tree go one after the other: one finds what the last one left.
    async fn check_all(&self, cases: &[Case]) -> (usize, Vec<String>) {
        let mut trees: BTreeMap<u32, Vec<&Case>> = BTreeMap::new();
        for case in cases {
            trees.entry(case.tree).or_default().push(case);
        }
        let checks = trees.into_iter().map(|(tree, cases)| {
            let mut world = Self {
                tree,
                ..self.clone()
            };
            async move {
                let mut done = 0;
                for case in cases {
                    done += usize::from(world.check(case).await);
                }
                (done, world.differences)
            }
        });
        let checked: Vec<_> = futures::stream::iter(checks)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let done = checked.iter().map(|(done, _)| done).sum();
        (
            done,
            checked.into_iter().flat_map(|(_, found)| found).collect(),
        )
    }

    /// Performs a case and compares; false where this host has no such place.
    async fn check(&mut self, case: &Case) -> bool {
        let Some(args) = case
            .args
            .iter()
            .map(|arg| self.given(arg))
            .collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        if case.op == "watch" && !self.files.provider().capabilities().watch {
            return false;
        }
        let uses_other = case.args.iter().any(|arg| {
            let path = arg.as_str().unwrap_or_default();
            path.starts_with("$/other")
        });
        let other_is_used = Arc::clone(&self.other_is_used);
        let _mine = match uses_other {
            true => Some(other_is_used.lock().await),
            false => None,
        };
        let answer = operations::perform(&self.files, &case.op, &args, self.owner).await;
        let (got, wanted) = match answer {
            Ok(value) => (self.hide_all(&value), case.value.clone()),
            Err(error) => (self.shown(&error), case.error.clone()),
        };
        let wanted = wanted.or_else(|| case.error.clone()).unwrap_or(Value::Null);
        let got = without_random(case, got);
        if got != wanted {
            self.differ(case, "answer", &wanted, &got);
        }
        if case.error.is_none() || !case.left.is_empty() {
            self.check_left(case).await;
        }
        if let (true, Some(other)) = (uses_other, &self.other) {
            operations::clear(&self.files, &other.join("new")).await;
        }
        true
    }

    async fn check_left(&mut self, case: &Case) {
        let left = join_all(LEFT.map(|place| self.left(place))).await;
        for (place, got) in LEFT.into_iter().zip(left) {
            let wanted = case.left.get(place).unwrap_or(&self.fresh[place]).clone();
            if got != wanted {
                self.differ(case, place, &wanted, &got);
            }
        }
    }

    async fn left(&self, place: &str) -> Value {
        let path = PathBuf::from(self.path(place).unwrap());
        let stat = match self.files.lstat(&path).await {
            Ok(stat) => stat,
            Err(error) => return json!([error.name()]),
        };
        let (kind, permissions) = (operations::kind(stat.kind), stat.permissions);
        match stat.kind {
            FileKind::File => {
                let text = self.files.read_file(&path).await;
                let text = text.map_or("unreadable".to_owned(), |bytes| {
                    bytes.into_iter().map(char::from).collect()
                });
                json!([kind, permissions, text])
            }
            FileKind::Symlink => {
                let target = self.files.readlink(&path).await.unwrap();
                json!([kind, permissions, self.hide(target.to_str().unwrap())])
            }
            FileKind::Directory => match self.names(&path).await {
                Ok(names) => json!([kind, permissions, names]),
                Err(error) => json!([error.name()]),
            },
            _ => json!([kind, permissions, null]),
        }
    }

    async fn names(&self, path: &Path) -> Result<String, FsError> {
        let names = self.files.readdir(path).await?;
        let names = names.iter().map(|name| name.to_str().unwrap());
        let mut names: Vec<String> = names
            .filter(|name| *name != "new")
            .map(operations::without_random)
            .collect();
        names.sort();
        Ok(names.join(" "))
    }

    fn differ(&mut self, case: &Case, what: &str, wanted: &Value, got: &Value) {
        let (op, args) = (&case.op, Value::from(case.args.clone()));
        self.differences.push(format!(
            "{op} {args}: {what}\n    Node: {wanted}\n    here: {got}"
        ));
    }

    /// An argument as this host knows it; none where it names a place that is not there.
    fn given(&self, arg: &Value) -> Option<Value> {
        match arg.as_str() {
            Some(text) => self.path(text).map(Value::from),
            None => Some(arg.clone()),
        }
    }

    fn path(&self, text: &str) -> Option<String> {
        let text = text
            .replace("%name%", &"n".repeat(256))
            .replace("%path%", &format!("{}x", "d/".repeat(2500)));
        let below = |dir: &Path, rest: &str| format!("{}{rest}", dir.to_str().unwrap());
        if let Some(rest) = text.strip_prefix("$/tree") {
            return Some(below(&self.base.join(format!("t{}", self.tree)), rest));
        }
        if let Some(rest) = text.strip_prefix("$/ro") {
            return self.read_only.as_ref().map(|dir| below(dir, rest));
        }
        if let Some(rest) = text.strip_prefix("$/other") {
            return self.other.as_ref().map(|dir| below(dir, rest));
        }
        Some(text)
    }

    fn hide(&self, text: &str) -> String {
        let tree = self.base.join(format!("t{}", self.tree));
        let mut text = text.replace(tree.to_str().unwrap(), "$/tree");
        for (dir, word) in [(&self.read_only, "$/ro"), (&self.other, "$/other")] {
            if let Some(dir) = dir {
                text = text.replace(dir.to_str().unwrap(), word);
            }
        }
        text.replace(&"n".repeat(256), "%name%")
            .replace(&format!("{}x", "d/".repeat(2500)), "%path%")
            // What a random suffix follows.
            .replace(&"d/".repeat(2500), "%path%")
    }

    fn hide_all(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.hide(text).into(),
            Value::Array(list) => list.iter().map(|value| self.hide_all(value)).collect(),
            other => other.clone(),
        }
    }

    /// An error as Node's has its properties.
    fn shown(&self, error: &FsError) -> Value {
        let mut shown = Map::new();
        shown.insert("code".to_owned(), error.name().into());
        shown.insert("errno".to_owned(), error.number().into());
        shown.insert("syscall".to_owned(), error.syscall.into());
        for (name, path) in [("path", &error.path), ("dest", &error.dest)] {
            if let Some(path) = path {
                shown.insert(name.to_owned(), self.hide(path.to_str().unwrap()).into());
            }
        }
        shown.insert("message".to_owned(), self.hide(&error.to_string()).into());
        shown.into()
    }
}

/// The letters that `mkdtemp` chose.
fn without_random(case: &Case, mut answer: Value) -> Value {
    let cut = |path: &str| path[..path.len() - 6].to_owned();
    if case.op == "mkdtemp" {
        if let Some(path) = answer.as_str() {
            return cut(path).into();
        }
        let path = answer["path"].as_str().unwrap().to_owned();
        let hidden = format!("{}XXXXXX", cut(&path));
        let message = answer["message"].as_str().unwrap().replace(&path, &hidden);
        answer["path"] = hidden.into();
        answer["message"] = message.into();
    }
    answer
}
