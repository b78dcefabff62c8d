//! Every relative link in the documentation leads to a file that exists, every anchor to a heading, and
//! every page under `docs/` can be reached from the README.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::{findings::Findings, tree::Tree};

const CHECK: &str = "docs-links";
const START: &str = "README.md";

/// One page: where it links to, and the anchors that its headings make.
struct Page {
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

pub(crate) fn check_tree(tree: &Tree) -> Result<Findings> {
    Ok(check(&tree.files().collect()))
}

fn check(files: &BTreeMap<&str, &str>) -> Findings {
    let pages: BTreeMap<&str, Page> = files
        .iter()
        .filter(|(path, _)| path.ends_with(".md"))
        .map(|(path, text)| (*path, read_page(text)))
        .collect();
    let mut findings = Findings::default();
    for (path, page) in &pages {
        for (line, link) in &page.links {
            if let Err(what) = follow(files, &pages, path, link) {
                findings.add(CHECK, format!("{path}:{line}"), what);
            }
        }
    }
    for lost in unreachable(&pages) {
        findings.add(
            CHECK,
            lost,
            format!("cannot be reached by links from {START}"),
        );
    }
    findings
}

fn is_elsewhere(link: &str) -> bool {
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| link.starts_with(scheme))
}

fn follow(
    files: &BTreeMap<&str, &str>,
    pages: &BTreeMap<&str, Page>,
    from: &str,
    link: &str,
) -> Result<(), String> {
    if is_elsewhere(link) {
        return Ok(());
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target =
        resolve(from, path).ok_or_else(|| format!("{link} leads out of the repository"))?;
    if !exists(files, &target) {
        return Err(format!("{link} leads to {target}, which does not exist"));
    }
    match pages.get(target.as_str()) {
        Some(page) if !anchor.is_empty() && !page.anchors.contains(anchor) => {
            Err(format!("{target} has no heading for #{anchor}"))
        }
        _ => Ok(()),
    }
}

/// A file, or a directory that holds one.
fn exists(files: &BTreeMap<&str, &str>, target: &str) -> bool {
    let below = format!("{}/", target.trim_end_matches('/'));
    files.contains_key(target)
        || target.is_empty()
        || files.keys().any(|path| path.starts_with(&below))
}

/// The path below the root that a link on page `from` means; an empty path is the page itself.
fn resolve(from: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn unreachable<'a>(pages: &BTreeMap<&'a str, Page>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next = vec![START.to_owned()];
    while let Some(path) = next.pop() {
        if let Some(page) = pages
            .get(path.as_str())
            .filter(|_| seen.insert(path.clone()))
        {
            let links = page.links.iter().filter(|(_, link)| !is_elsewhere(link));
            next.extend(links.filter_map(|(_, link)| resolve(&path, link.split('#').next()?)));
        }
    }
    pages
        .keys()
        .filter(|path| path.starts_with("docs/") && !seen.contains(**path))
        .copied()
        .collect()
}

fn read_page(text: &str) -> Page {
    let mut page = Page {
        links: Vec::new(),
        anchors: BTreeSet::new(),
    };
    for (number, line) in prose(text) {
        page.links
            .extend(links_in(line).into_iter().map(|link| (number, link)));
        if let Some(heading) = line.strip_prefix('#') {
            add_anchor(&mut page.anchors, heading.trim_start_matches('#'));
        }
    }
    page
}

/// The numbered lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)` and `[label]: target`, inline code left out.
fn links_in(line: &str) -> Vec<String> {
    let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
    let defined = plain
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target);
    let inline = plain
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    inline
        .chain(defined)
        .filter_map(|target| target.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// A heading's anchor as forges make it: lower case, punctuation gone, spaces as hyphens, repeats counted.
fn add_anchor(anchors: &mut BTreeSet<String>, heading: &str) {
    let slug: String = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect();
    let repeats = (1..).map(|n| format!("{slug}-{n}"));
    let free = std::iter::once(slug.clone())
        .chain(repeats)
        .find(|slug| !anchors.contains(slug));
    anchors.extend(free);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::check;

    fn found(files: &[(&'static str, &'static str)]) -> Vec<String> {
        check(&files.iter().copied().collect::<BTreeMap<_, _>>()).texts()
    }

    #[test]
    fn good_links_pass() {
        let files = [
            (
                "README.md",
                "[a](docs/a.md#what-is-it) [dir](docs/) [web](https://example.com) [up](#top)\n# Top",
            ),
            (
                "docs/a.md",
                "## What is it?\n[back](../README.md)\n[ref]: ../LICENSE\n",
            ),
            ("LICENSE", ""),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_missing_file_a_missing_heading_and_a_way_out_are_each_found() {
        assert_eq!(
            found(&[("README.md", "\n[a](no.md)")]),
            ["README.md:2: no.md leads to no.md, which does not exist"]
        );
        assert_eq!(
            found(&[("README.md", "# Here\n[a](#there)")]),
            ["README.md:2: README.md has no heading for #there"]
        );
        assert_eq!(
            found(&[("README.md", "[a](../x)")]),
            ["README.md:1: ../x leads out of the repository"]
        );
    }

    #[test]
    fn a_page_that_no_link_reaches_is_found() {
        let files = [
            ("README.md", "[a](docs/a.md)"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
        ];
        assert_eq!(
            found(&files),
            ["docs/b.md: cannot be reached by links from README.md"]
        );
    }

    #[test]
    fn code_is_not_read_as_links_or_headings() {
        let files = [(
            "README.md",
            "```sh\n# not a heading\n[a](no.md)\n```\n`[b](no.md)`\n",
        )];
        assert_eq!(found(&files), [""; 0]);
    }
}
