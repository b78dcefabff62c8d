//! A table of results: printed, and kept in `bench/RESULTS.md` under its own heading.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context, Result};

pub(crate) struct Report {
    /// The heading; a later run of the same benchmark replaces the section under it.
    pub(crate) title: String,
    /// The command that makes the table again.
    pub(crate) command: String,
    /// What was measured and what the figures mean, in a sentence or two.
    pub(crate) about: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// What else must be known to read the table.
    pub(crate) notes: Vec<String>,
}

impl Report {
    pub(crate) fn publish(&self, write: bool) -> Result<()> {
        let section = self.markdown()?;
        #[expect(clippy::print_stdout, reason = "the table is what the command is for")]
        {
            println!("{section}");
        }
        if write {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md");
            let old = fs::read_to_string(&path).unwrap_or_default();
            fs::write(&path, replace_section(&old, &self.title, &section))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    fn markdown(&self) -> Result<String> {
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.about);
        writeln!(
            text,
            "Machine: {}. Date: {}. Again: `{}`\n",
            machine()?,
            today()?,
            self.command
        )?;
        writeln!(text, "| {} |", self.head.join(" | "))?;
        writeln!(text, "|{}", "---|".repeat(self.head.len()))?;
        for row in &self.rows {
            writeln!(text, "| {} |", row.join(" | "))?;
        }
        for note in &self.notes {
            write!(text, "\n- {note}")?;
        }
        text.push('\n');
        Ok(text)
    }
}

/// The document with the section of this title replaced, or added at the end.
fn replace_section(document: &str, title: &str, section: &str) -> String {
    let heading = format!("## {title}\n");
    let Some(start) = document.find(&heading) else {
        return format!("{}\n\n{section}", document.trim_end());
    };
    let after = document[start + heading.len()..]
        .find("\n## ")
        .map_or(document.len(), |at| start + heading.len() + at + 1);
    format!("{}{section}\n{}", &document[..start], &document[after..])
        .trim_end()
        .to_owned()
        + "\n"
}

fn machine() -> Result<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let cpu = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown CPU", |rest| {
            rest.trim_start_matches([' ', '\t', ':'])
        });
    let cores = std::thread::available_parallelism()?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or("?");
    Ok(format!(
        "{model}, {cores} cores, Linux {}, load {load} at the end",
        kernel.trim()
    ))
}

fn today() -> Result<String> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    Ok(String::from_utf8(date.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_where_it_stands_and_the_others_stay() {
        let old = "# R\n\n## A\n\nold\n\n## B\n\nkept\n";
        let new = replace_section(old, "A", "## A\n\nnew\n");
        assert_eq!(new, "# R\n\n## A\n\nnew\n\n## B\n\nkept\n");
    }

    #[test]
    fn an_unknown_section_comes_last() {
        assert_eq!(replace_section("# R\n", "A", "## A\n"), "# R\n\n## A\n");
    }
}
