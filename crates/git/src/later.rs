//! Which changes of a diff would run, or steer what runs, on a person's machine later (case 42).
//!
//! Inside a sandbox such files are harmless. They become dangerous when a person checks the branch out, opens it in an
//! editor, lets an agent loose in it, or when CI picks it up. A gate shows them apart, with the reason, so that
//! nobody approves one without having seen it. The list errs on the side of naming too much.

use serde::{Deserialize, Serialize};

use crate::{
    diff::{ChangeKind, FileChange, PhaseDiff},
    error::Result,
    names::Oid,
    objects::Objects,
    repository::Repository,
};

/// What kind of thing would run later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaterKind {
    GitHook,
    GitSettings,
    AgentSettings,
    AgentInstructions,
    EditorSettings,
    ShellEnvironment,
    Ci,
    PackageScript,
    BuildScript,
    BulkheadSettings,
    ExecutableBit,
    LinkOutside,
    Submodule,
}

/// One change that would run later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunsLater {
    pub path: Vec<u8>,
    pub kind: LaterKind,
    /// Who would run it and when, as a sentence's end: "git runs it on a commit or push".
    pub why: String,
}

/// Where a rule looks. Names are compared without regard to case, as some file systems do.
#[derive(Debug, Clone, Copy)]
enum At {
    /// A directory of this name anywhere, and so everything below it.
    Dir(&'static str),
    /// A file of this name anywhere.
    File(&'static str),
    /// A file anywhere whose name ends so.
    End(&'static str),
    /// These last parts of a path, anywhere.
    Tail(&'static str),
}

use At::{Dir, End, File, Tail};
use LaterKind::{
    AgentInstructions, AgentSettings, BuildScript, BulkheadSettings, Ci, EditorSettings, GitHook,
    GitSettings, PackageScript, ShellEnvironment,
};

/// The documented table (`docs/git.md` shows it; a test compares them).
const RULES: &[(At, LaterKind, &str)] = &[
    (
        Dir(".husky"),
        GitHook,
        "git runs it on commits and pushes once hooks are installed",
    ),
    (
        Dir(".githooks"),
        GitHook,
        "git runs it on commits and pushes where core.hooksPath names it",
    ),
    (
        Dir(".git-hooks"),
        GitHook,
        "git runs it on commits and pushes where core.hooksPath names it",
    ),
    (
        Dir("hooks"),
        GitHook,
        "a directory of hooks may be installed as git's",
    ),
    (
        File(".pre-commit-config.yaml"),
        GitHook,
        "pre-commit runs what it names on each commit",
    ),
    (
        File("lefthook.yml"),
        GitHook,
        "lefthook runs what it names on each commit",
    ),
    (
        File(".lefthook.yml"),
        GitHook,
        "lefthook runs what it names on each commit",
    ),
    (
        File(".gitattributes"),
        GitSettings,
        "it chooses filters, diff and merge programs for files",
    ),
    (
        File(".gitmodules"),
        GitSettings,
        "it names repositories that git fetches",
    ),
    (
        File(".gitconfig"),
        GitSettings,
        "git runs programs that it names where it is included",
    ),
    (
        File(".lfsconfig"),
        GitSettings,
        "it names the server that git-lfs sends files to",
    ),
    (
        Dir(".claude"),
        AgentSettings,
        "Claude Code runs hooks and tools that it configures",
    ),
    (
        File(".mcp.json"),
        AgentSettings,
        "agents start the servers that it names",
    ),
    (
        Dir(".codex"),
        AgentSettings,
        "Codex reads settings, tools and permissions from it",
    ),
    (
        Dir(".gemini"),
        AgentSettings,
        "Gemini CLI reads settings and tools from it",
    ),
    (
        Dir(".opencode"),
        AgentSettings,
        "opencode reads settings, plugins and tools from it",
    ),
    (
        File("opencode.json"),
        AgentSettings,
        "opencode reads settings, plugins and tools from it",
    ),
    (
        File("opencode.jsonc"),
        AgentSettings,
        "opencode reads settings, plugins and tools from it",
    ),
    (
        Dir(".agents"),
        AgentSettings,
        "agents read settings and skills from it",
    ),
    (
        Dir(".cursor"),
        AgentSettings,
        "Cursor reads rules, hooks and tools from it",
    ),
    (File(".cursorrules"), AgentInstructions, "Cursor follows it"),
    (
        Dir(".windsurf"),
        AgentSettings,
        "Windsurf reads rules and tools from it",
    ),
    (
        Dir(".continue"),
        AgentSettings,
        "Continue reads settings and tools from it",
    ),
    (
        File(".aider.conf.yml"),
        AgentSettings,
        "aider runs commands that it names",
    ),
    (File("agents.md"), AgentInstructions, "agents follow it"),
    (
        File("claude.md"),
        AgentInstructions,
        "Claude Code follows it",
    ),
    (
        File("gemini.md"),
        AgentInstructions,
        "Gemini CLI follows it",
    ),
    (
        Tail(".github/copilot-instructions.md"),
        AgentInstructions,
        "Copilot follows it",
    ),
    (
        Dir(".vscode"),
        EditorSettings,
        "the editor runs tasks and programs that it names",
    ),
    (
        End(".code-workspace"),
        EditorSettings,
        "the editor runs tasks and programs that it names",
    ),
    (
        Dir(".idea"),
        EditorSettings,
        "the editor runs configurations and programs that it names",
    ),
    (
        Dir(".zed"),
        EditorSettings,
        "the editor runs tasks and programs that it names",
    ),
    (
        File(".exrc"),
        EditorSettings,
        "vim runs it where exrc is on",
    ),
    (
        File(".nvim.lua"),
        EditorSettings,
        "Neovim runs it where exrc is on",
    ),
    (File(".dir-locals.el"), EditorSettings, "Emacs evaluates it"),
    (
        Dir(".devcontainer"),
        EditorSettings,
        "the editor builds and runs the container that it describes",
    ),
    (
        File(".devcontainer.json"),
        EditorSettings,
        "the editor builds and runs the container that it describes",
    ),
    (
        File(".envrc"),
        ShellEnvironment,
        "direnv runs it on entering the directory",
    ),
    (
        File(".tool-versions"),
        ShellEnvironment,
        "asdf and mise choose programs by it",
    ),
    (
        File("mise.toml"),
        ShellEnvironment,
        "mise runs hooks and sets the environment by it",
    ),
    (
        File(".mise.toml"),
        ShellEnvironment,
        "mise runs hooks and sets the environment by it",
    ),
    (File(".nvmrc"), ShellEnvironment, "nvm chooses node by it"),
    (
        File("rust-toolchain.toml"),
        ShellEnvironment,
        "rustup chooses, and fetches, the toolchain by it",
    ),
    (
        File("rust-toolchain"),
        ShellEnvironment,
        "rustup chooses, and fetches, the toolchain by it",
    ),
    (
        Tail(".github/workflows/*"),
        Ci,
        "GitHub runs it with the repository's secrets",
    ),
    (Tail(".github/actions/*"), Ci, "GitHub workflows run it"),
    (
        Tail(".forgejo/workflows/*"),
        Ci,
        "Forgejo runs it with the repository's secrets",
    ),
    (
        Tail(".gitea/workflows/*"),
        Ci,
        "Gitea runs it with the repository's secrets",
    ),
    (
        File(".gitlab-ci.yml"),
        Ci,
        "GitLab runs it with the repository's secrets",
    ),
    (Dir(".gitlab"), Ci, "GitLab's pipelines include from it"),
    (Dir(".woodpecker"), Ci, "Woodpecker runs it"),
    (File(".woodpecker.yml"), Ci, "Woodpecker runs it"),
    (File(".drone.yml"), Ci, "Drone runs it"),
    (Dir(".circleci"), Ci, "CircleCI runs it"),
    (Dir(".buildkite"), Ci, "Buildkite runs it"),
    (File("jenkinsfile"), Ci, "Jenkins runs it"),
    (File("azure-pipelines.yml"), Ci, "Azure Pipelines runs it"),
    (File("bitbucket-pipelines.yml"), Ci, "Bitbucket runs it"),
    (File(".travis.yml"), Ci, "Travis CI runs it"),
    (Dir(".ci"), Ci, "a CI system may run it"),
    (
        Tail(".github/dependabot.yml"),
        Ci,
        "GitHub opens pull requests by it",
    ),
    (
        File(".npmrc"),
        PackageScript,
        "npm chooses registries and programs by it",
    ),
    (
        File(".yarnrc"),
        PackageScript,
        "yarn runs the program that it names",
    ),
    (
        File(".yarnrc.yml"),
        PackageScript,
        "yarn runs the program and plugins that it names",
    ),
    (
        Dir(".yarn"),
        PackageScript,
        "yarn runs releases and plugins from it",
    ),
    (
        File(".pnpmfile.cjs"),
        PackageScript,
        "pnpm runs it on install",
    ),
    (
        File("bunfig.toml"),
        PackageScript,
        "bun preloads what it names",
    ),
    (File("setup.py"), PackageScript, "pip runs it on install"),
    (
        File("setup.cfg"),
        PackageScript,
        "Python builds are configured by it",
    ),
    (
        File("pyproject.toml"),
        PackageScript,
        "pip runs the build back end that it names",
    ),
    (
        File("conftest.py"),
        PackageScript,
        "pytest runs it before any test",
    ),
    (
        File("sitecustomize.py"),
        PackageScript,
        "Python runs it at each start where it is on the path",
    ),
    (
        File("usercustomize.py"),
        PackageScript,
        "Python runs it at each start where it is on the path",
    ),
    (
        End(".pth"),
        PackageScript,
        "Python runs it at each start where it is on the path",
    ),
    (File("noxfile.py"), PackageScript, "nox runs it"),
    (File("gemfile"), PackageScript, "Bundler evaluates it"),
    (End(".gemspec"), PackageScript, "RubyGems evaluates it"),
    (
        File("composer.json"),
        PackageScript,
        "Composer runs scripts that it names",
    ),
    (File("build.rs"), BuildScript, "cargo runs it on each build"),
    (
        Tail(".cargo/config.toml"),
        BuildScript,
        "cargo runs wrappers, linkers and runners that it names",
    ),
    (
        Tail(".cargo/config"),
        BuildScript,
        "cargo runs wrappers, linkers and runners that it names",
    ),
    (
        File("cargo.toml"),
        BuildScript,
        "cargo runs build scripts and procedural macros that it names",
    ),
    (File("makefile"), BuildScript, "make runs it"),
    (File("gnumakefile"), BuildScript, "make runs it"),
    (End(".mk"), BuildScript, "make runs it where it is included"),
    (File("justfile"), BuildScript, "just runs it"),
    (File("taskfile.yml"), BuildScript, "task runs it"),
    (File("cmakelists.txt"), BuildScript, "cmake runs it"),
    (File("meson.build"), BuildScript, "meson runs it"),
    (File("build.gradle"), BuildScript, "gradle runs it"),
    (File("build.gradle.kts"), BuildScript, "gradle runs it"),
    (File("settings.gradle"), BuildScript, "gradle runs it"),
    (File("settings.gradle.kts"), BuildScript, "gradle runs it"),
    (
        File("gradle-wrapper.properties"),
        BuildScript,
        "gradlew fetches and runs what it names",
    ),
    (File("gradle-wrapper.jar"), BuildScript, "gradlew runs it"),
    (Dir(".mvn"), BuildScript, "maven loads extensions from it"),
    (
        File("pom.xml"),
        BuildScript,
        "maven runs plugins that it names",
    ),
    (File("build.zig"), BuildScript, "zig runs it on each build"),
    (File("build.sbt"), BuildScript, "sbt runs it"),
    (File("flake.nix"), BuildScript, "nix evaluates it"),
    (
        File("shell.nix"),
        BuildScript,
        "nix evaluates it, also through direnv",
    ),
    (File("dockerfile"), BuildScript, "docker builds and runs it"),
    (
        File("docker-compose.yml"),
        BuildScript,
        "docker starts what it names, with the mounts that it names",
    ),
    (
        File("compose.yaml"),
        BuildScript,
        "docker starts what it names, with the mounts that it names",
    ),
    (
        File("compose.yml"),
        BuildScript,
        "docker starts what it names, with the mounts that it names",
    ),
    (
        File("directory.build.props"),
        BuildScript,
        "msbuild runs it",
    ),
    (
        File("directory.build.targets"),
        BuildScript,
        "msbuild runs it",
    ),
    (
        Dir(".bulkhead"),
        BulkheadSettings,
        "runs that start from here after landing follow it",
    ),
];

/// The names in the table, as the documentation shows them.
pub fn documented_patterns() -> Vec<String> {
    RULES
        .iter()
        .map(|(at, _, _)| match at {
            Dir(name) => format!("{name}/"),
            File(name) | Tail(name) => (*name).to_owned(),
            End(end) => format!("*{end}"),
        })
        .collect()
}

impl Repository {
    /// Lists the changes that would run on a person's machine later. Deleted files cannot and are left out.
    pub async fn runs_later(&self, diff: &PhaseDiff) -> Result<Vec<RunsLater>> {
        let objects = self.objects()?;
        let mut found = Vec::new();
        for file in diff
            .files
            .iter()
            .filter(|file| file.kind != ChangeKind::Deleted)
        {
            by_mode(&objects, file, &mut found).await?;
            by_name(file, &mut found);
            if ends_with(&file.path, "package.json") {
                package_scripts(&objects, file, &mut found).await?;
            }
        }
        Ok(found)
    }
}

fn by_name(file: &FileChange, found: &mut Vec<RunsLater>) {
    let path = String::from_utf8_lossy(&file.path).to_lowercase();
    let parts: Vec<&str> = path.split('/').collect();
    let mut kinds = Vec::new();
    for (at, kind, why) in RULES {
        if at.matches(&parts) && !kinds.contains(kind) {
            kinds.push(*kind);
            found.push(RunsLater {
                path: file.path.clone(),
                kind: *kind,
                why: (*why).to_owned(),
            });
        }
    }
}

impl At {
    fn matches(self, parts: &[&str]) -> bool {
        let (dirs, name) = parts.split_at(parts.len() - 1);
        match self {
            // A link or file of the directory's own name counts too: it may become the directory's stand-in.
            Self::Dir(dir) => dirs.contains(&dir) || (name == [dir] && dir.starts_with('.')),
            Self::File(file) => name == [file],
            Self::End(end) => name.iter().any(|name| name.ends_with(end)),
            Self::Tail(tail) => match tail.strip_suffix("/*") {
                Some(dir) => {
                    let wanted: Vec<&str> = dir.split('/').collect();
                    dirs.windows(wanted.len()).any(|window| window == wanted)
                }
                None => parts.ends_with(&tail.split('/').collect::<Vec<_>>()),
            },
        }
    }
}

fn ends_with(path: &[u8], name: &str) -> bool {
    path.rsplit(|&byte| byte == b'/')
        .next()
        .is_some_and(|last| last.eq_ignore_ascii_case(name.as_bytes()))
}

async fn by_mode(objects: &Objects, file: &FileChange, found: &mut Vec<RunsLater>) -> Result<()> {
    let mut add = |kind, why: String| {
        found.push(RunsLater {
            path: file.path.clone(),
            kind,
            why,
        })
    };
    match file.new_mode {
        0o160_000 => add(
            LaterKind::Submodule,
            format!("git fetches commit {} of another repository", file.new),
        ),
        0o120_000 => {
            let target = objects.blob(&file.new, 64 << 10).await?;
            if leads_outside(&file.path, &target) {
                let target = crate::diff::shown(&target);
                add(
                    LaterKind::LinkOutside,
                    format!("it is a link to {target}, outside the repository"),
                );
            }
        }
        mode if mode & 0o111 != 0 && file.old_mode & 0o111 == 0 => {
            add(
                LaterKind::ExecutableBit,
                "it is a program now: it can be run by its name".to_owned(),
            );
        }
        _ => {}
    }
    Ok(())
}

/// Whether a link at `path` leads out of the repository, or into its `.git`, by its text alone.
pub(crate) fn leads_outside(path: &[u8], target: &[u8]) -> bool {
    if target.starts_with(b"/") || target.contains(&b'\\') {
        return true;
    }
    let mut at: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    at.pop();
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if at.pop().is_none() => return true,
            b".." => {}
            part => at.push(part),
        }
    }
    at.iter().any(|part| part.eq_ignore_ascii_case(b".git"))
}

async fn package_scripts(
    objects: &Objects,
    file: &FileChange,
    found: &mut Vec<RunsLater>,
) -> Result<()> {
    let old = if file.old_mode == 0 {
        None
    } else {
        Some(&file.old)
    };
    let changed = match (
        scripts(objects, old).await?,
        scripts(objects, Some(&file.new)).await?,
    ) {
        (Some(old), Some(new)) => changed_keys(&old, &new),
        _ => vec!["unreadable: not JSON".to_owned()],
    };
    if !changed.is_empty() {
        let why = format!("npm and its like run its scripts ({})", changed.join(", "));
        found.push(RunsLater {
            path: file.path.clone(),
            kind: PackageScript,
            why,
        });
    }
    Ok(())
}

/// What in a `package.json` makes programs run. `None` where it cannot be read as JSON.
async fn scripts(
    objects: &Objects,
    oid: Option<&Oid>,
) -> Result<Option<serde_json::Map<String, serde_json::Value>>> {
    let mut kept = serde_json::Map::new();
    let Some(oid) = oid.filter(|oid| !oid.is_zero()) else {
        return Ok(Some(kept));
    };
    let bytes = objects.blob(oid, 4 << 20).await?;
    let Ok(serde_json::Value::Object(all)) = serde_json::from_slice(&bytes) else {
        return Ok(None);
    };
    if let Some(serde_json::Value::Object(scripts)) = all.get("scripts") {
        kept.extend(
            scripts
                .iter()
                .map(|(name, value)| (format!("scripts.{name}"), value.clone())),
        );
    }
    for key in [
        "bin",
        "husky",
        "lint-staged",
        "simple-git-hooks",
        "pre-commit",
        "packageManager",
        "gypfile",
        "overrides",
        "dependencies",
        "devDependencies",
        "optionalDependencies",
        "workspaces",
    ] {
        if let Some(value) = all.get(key) {
            kept.insert(key.to_owned(), value.clone());
        }
    }
    Ok(Some(kept))
}

fn changed_keys(
    old: &serde_json::Map<String, serde_json::Value>,
    new: &serde_json::Map<String, serde_json::Value>,
) -> Vec<String> {
    let changed = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(value));
    changed
        .map(|(key, _)| crate::diff::shown(key.as_bytes()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_41_links_are_judged_by_where_their_text_leads() {
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a/b", "../../x"),
            ("a", ".."),
            ("a/b/c", "../../../x"),
            ("x", "..\\y"),
            ("a", ".git/hooks/pre-commit"),
            ("a/b", "../.GIT/config"),
            ("a", "b/../../c"),
        ] {
            assert!(
                leads_outside(path.as_bytes(), target.as_bytes()),
                "{path} -> {target}"
            );
        }
        for (path, target) in [
            ("a", "b"),
            ("a/b", "../c"),
            ("a/b/c", "./../../d"),
            ("a", "b/../c"),
            ("a", ".github/x"),
        ] {
            assert!(
                !leads_outside(path.as_bytes(), target.as_bytes()),
                "{path} -> {target}"
            );
        }
    }

    #[test]
    fn case_42_names_match_anywhere_and_in_any_case() {
        let kinds = |path: &str| {
            let parts: Vec<String> = path.to_lowercase().split('/').map(str::to_owned).collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            RULES
                .iter()
                .filter(|(at, _, _)| at.matches(&parts))
                .map(|(_, kind, _)| *kind)
                .collect::<Vec<_>>()
        };
        assert_eq!(kinds("web/.CLAUDE/settings.json"), [AgentSettings]);
        assert_eq!(kinds(".claude"), [AgentSettings]);
        assert_eq!(kinds("sub/.vscode/tasks.json"), [EditorSettings]);
        assert_eq!(kinds(".github/workflows/deep/ci.yml"), [Ci]);
        assert_eq!(kinds("Jenkinsfile"), [Ci]);
        assert_eq!(kinds("AGENTS.md"), [AgentInstructions]);
        assert_eq!(kinds(".cargo/config.toml"), [BuildScript]);
        assert!(kinds("src/main.rs").is_empty());
        assert!(kinds("docs/github/workflows.md").is_empty());
    }
}
