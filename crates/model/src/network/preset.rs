//! Allow-lists of the usual package registries, by name.
//!
//! Each preset holds only what the registry's own client asks for by default, with the place that says
//! so. A preset is reading and, where the registry takes uploads on the same host, writing too: who holds
//! a registry token inside a sandbox can publish with it.

use super::rule::EgressRule;

/// A named set of rules.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// Rules as people would write them; a test reads every one.
    pub entries: &'static [&'static str],
}

impl Preset {
    pub fn rules(&self) -> Vec<EgressRule> {
        self.entries
            .iter()
            .filter_map(|entry| entry.parse().ok())
            .collect()
    }
}

/// No preset has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset {name:?}; {}", hint(*nearest))]
pub struct UnknownPreset {
    pub name: String,
    pub nearest: Option<&'static str>,
}

fn hint(nearest: Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!("did you mean `preset:{name}`?"),
        None => format!("the presets are {}", names().collect::<Vec<_>>().join(", ")),
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// Finds a preset by its exact name.
pub fn preset(name: &str) -> Result<&'static Preset, UnknownPreset> {
    PRESETS
        .iter()
        .find(|preset| preset.name == name)
        .ok_or_else(|| UnknownPreset {
            name: name.chars().take(64).collect(),
            nearest: nearest(name),
        })
}

fn nearest(name: &str) -> Option<&'static str> {
    let lower = name.chars().take(64).collect::<String>().to_lowercase();
    names()
        .map(|known| (strsim::damerau_levenshtein(&lower, known), known))
        .filter(|(distance, known)| *distance <= 2 && *distance < known.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// All presets, by name.
pub static PRESETS: &[Preset] = &[
    // https://wiki.alpinelinux.org/wiki/Repositories: the default mirror.
    Preset {
        name: "alpine",
        about: "Alpine packages (apk)",
        entries: &["dl-cdn.alpinelinux.org:443", "dl-cdn.alpinelinux.org:80"],
    },
    // https://docs.conda.io/projects/conda/en/stable/user-guide/configuration/settings.html: `default_channels`
    // and `channel_alias`.
    Preset {
        name: "conda",
        about: "Conda packages",
        entries: &["conda.anaconda.org", "repo.anaconda.com"],
    },
    // https://doc.rust-lang.org/cargo/reference/registry-index.html: the sparse index and its config.json, whose
    // `dl` names static.crates.io and whose `api` names crates.io.
    Preset {
        name: "crates",
        about: "Rust crates (cargo)",
        entries: &["index.crates.io", "static.crates.io", "crates.io"],
    },
    // https://www.debian.org/mirror/list and https://www.debian.org/security/: apt's default is plain HTTP, its files are signed.
    Preset {
        name: "debian",
        about: "Debian packages (apt)",
        entries: &[
            "deb.debian.org:80",
            "deb.debian.org:443",
            "security.debian.org:80",
            "security.debian.org:443",
        ],
    },
    // https://docs.docker.com/desktop/setup/allow-list/: pulling from Docker Hub.
    Preset {
        name: "docker-hub",
        about: "images from Docker Hub",
        entries: &[
            "registry-1.docker.io",
            "auth.docker.io",
            "production.cloudflare.docker.com",
        ],
    },
    // https://docs.github.com/en/actions/reference/runners/self-hosted-runners: hosts for code, archives and release files.
    Preset {
        name: "github",
        about: "repositories, archives, release files and the API of GitHub",
        entries: &[
            "github.com",
            "api.github.com",
            "codeload.github.com",
            "raw.githubusercontent.com",
            "objects.githubusercontent.com",
            "release-assets.githubusercontent.com",
        ],
    },
    // https://docs.gitlab.com/user/gitlab_com/: the one host of gitlab.com's web, API and HTTPS git.
    Preset {
        name: "gitlab",
        about: "repositories and the API of gitlab.com",
        entries: &["gitlab.com"],
    },
    // https://go.dev/ref/mod#environment-variables: the defaults of GOPROXY and GOSUMDB.
    Preset {
        name: "go",
        about: "Go modules and toolchains",
        entries: &["proxy.golang.org", "sum.golang.org"],
    },
    // https://docs.gradle.org/current/userguide/plugins.html and .../gradle_wrapper.html.
    Preset {
        name: "gradle",
        about: "Gradle distributions and plugins; add preset:maven for libraries",
        entries: &[
            "services.gradle.org",
            "downloads.gradle.org",
            "plugins.gradle.org",
            "plugins-artifacts.gradle.org",
        ],
    },
    // https://cabal.readthedocs.io/en/stable/config.html: the default `repository`.
    Preset {
        name: "hackage",
        about: "Haskell packages (cabal)",
        entries: &["hackage.haskell.org"],
    },
    // https://hexdocs.pm/hex/Mix.Tasks.Hex.Config.html: `api_url` and `repo_url`.
    Preset {
        name: "hex",
        about: "Elixir and Erlang packages",
        entries: &["repo.hex.pm", "hex.pm", "builds.hex.pm"],
    },
    // https://maven.apache.org/guides/introduction/introduction-to-repositories.html: Maven Central's two names.
    Preset {
        name: "maven",
        about: "Java libraries (Maven Central)",
        entries: &["repo.maven.apache.org", "repo1.maven.org"],
    },
    // https://docs.npmjs.com/cli/using-npm/registry and https://classic.yarnpkg.com/en/docs/cli/config: default registries;
    // https://github.com/nodejs/node-gyp#environment-variables: `disturl`, for native modules.
    Preset {
        name: "npm",
        about: "npm, pnpm and Yarn packages",
        entries: &["registry.npmjs.org", "registry.yarnpkg.com", "nodejs.org"],
    },
    // https://learn.microsoft.com/en-us/nuget/api/overview: the service index of nuget.org.
    Preset {
        name: "nuget",
        about: ".NET packages",
        entries: &["api.nuget.org", "globalcdn.nuget.org"],
    },
    // https://getcomposer.org/doc/05-repositories.md#packagist-org.
    Preset {
        name: "packagist",
        about: "PHP packages (Composer); add preset:github for their archives",
        entries: &["repo.packagist.org", "packagist.org"],
    },
    // https://dart.dev/tools/pub/environment-variables: PUB_HOSTED_URL's default.
    Preset {
        name: "pub",
        about: "Dart and Flutter packages",
        entries: &["pub.dev", "pub.dartlang.org"],
    },
    // https://docs.pypi.org/api/: the index, and the host of its files.
    Preset {
        name: "pypi",
        about: "Python packages (pip, uv, Poetry)",
        entries: &["pypi.org", "files.pythonhosted.org"],
    },
    // https://guides.rubygems.org/rubygems-org-api-v2/ and https://index.rubygems.org: the compact index of Bundler.
    Preset {
        name: "rubygems",
        about: "Ruby gems (gem, Bundler)",
        entries: &["rubygems.org", "index.rubygems.org"],
    },
    // https://rust-lang.github.io/rustup/environment-variables.html: RUSTUP_DIST_SERVER and RUSTUP_UPDATE_ROOT.
    Preset {
        name: "rustup",
        about: "Rust toolchains",
        entries: &["static.rust-lang.org"],
    },
    // https://documentation.ubuntu.com/server/: the archive, its security pocket, and the archive of other architectures.
    Preset {
        name: "ubuntu",
        about: "Ubuntu packages (apt)",
        entries: &[
            "archive.ubuntu.com:80",
            "archive.ubuntu.com:443",
            "security.ubuntu.com:80",
            "security.ubuntu.com:443",
            "ports.ubuntu.com:80",
            "ports.ubuntu.com:443",
        ],
    },
];
