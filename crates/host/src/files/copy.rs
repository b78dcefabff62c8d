//! `cp`: a file, a link or a whole tree.

use std::path::{Path, PathBuf};

use futures::{FutureExt as _, future::BoxFuture};
use rustix::io::Errno;

use super::{
    FileKind, FileSystem, Follow, FsError, Refusal, Stat, lexical,
    options::{CopyOptions, Existing, Links},
    whole::Replace,
};

/// One thing to copy, and what is at its destination.
struct Step<'a> {
    from: &'a Path,
    to: &'a Path,
    source: Stat,
    target: Option<Stat>,
}

impl FileSystem {
    /// Copies a file or, with `recursive`, a directory with all that is in it, as far as the options say.
    pub async fn cp(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<(), FsError> {
        let step = self.look(from, to, options).await?;
        self.check_parents(&step).await?;
        let parent = lexical::dirname(to);
        match self.stat(&parent).await {
            Err(error) if error.is(Errno::NOENT) => {
                self.mkdir_recursive(&parent, 0o777).await?;
            }
            other => drop(other?),
        }
        self.copy(step, options).await
    }

    /// What both ends are, where they fit together.
    async fn look<'a>(
        &self,
        from: &'a Path,
        to: &'a Path,
        options: CopyOptions,
    ) -> Result<Step<'a>, FsError> {
        let source = self.seen(from, options).await?;
        let target = match self.seen(to, options).await {
            Err(error) if error.is(Errno::NOENT) => None,
            other => Some(other?),
        };
        let (shown_from, shown_to) = (from.display(), to.display());
        let refused = |refusal, why| Err(FsError::refused(refusal, "cp", to, why));
        if let Some(target) = &target {
            let follow = match options.links {
                Links::Follow => Follow::Yes,
                Links::Resolve | Links::Verbatim => Follow::No,
            };
            if self
                .is_one_file((from, &source), (to, target), follow)
                .await
            {
                let why = "src and dest cannot be the same".to_owned();
                return refused(Refusal::CopyInvalid, why);
            }
            match (source.is_directory(), target.is_directory()) {
                (true, false) => {
                    let why = format!(
                        "cannot overwrite non-directory {shown_to} with directory {shown_from}"
                    );
                    return refused(Refusal::CopyDirectoryToOther, why);
                }
                (false, true) => {
                    let why = format!(
                        "cannot overwrite directory {shown_to} with non-directory {shown_from}"
                    );
                    return refused(Refusal::CopyOtherToDirectory, why);
                }
                _ => {}
            }
        }
        if source.is_directory() && lexical::contains(from, to) {
            return Err(into_itself(from, to));
        }
        Ok(Step {
            from,
            to,
            source,
            target,
        })
    }

    async fn seen(&self, path: &Path, options: CopyOptions) -> Result<Stat, FsError> {
        match options.links {
            Links::Follow => self.stat(path).await,
            Links::Resolve | Links::Verbatim => self.lstat(path).await,
        }
    }

    /// A destination below the source, by whatever links, would never be finished.
    async fn check_parents(&self, step: &Step<'_>) -> Result<(), FsError> {
        let source_parent = lexical::normal(&lexical::dirname(step.from));
        let mut parent = lexical::normal(&lexical::dirname(step.to));
        while parent != source_parent && parent != lexical::dirname(&parent) {
            match self.stat(&parent).await {
                Err(error) if error.is(Errno::NOENT) => return Ok(()),
                stat => {
                    let (source, other) = ((step.from, &step.source), (&*parent, &stat?));
                    if step.source.is_directory()
                        && self.is_one_file(source, other, Follow::Yes).await
                    {
                        return Err(into_itself(step.from, step.to));
                    }
                }
            }
            parent = lexical::dirname(&parent);
        }
        Ok(())
    }

    fn copy<'a>(
        &'a self,
        step: Step<'a>,
        options: CopyOptions,
    ) -> BoxFuture<'a, Result<(), FsError>> {
        let refused = |refusal, why: String| {
            let error = FsError::refused(refusal, "cp", step.to, why);
            async { Err(error) }.boxed()
        };
        let shown = step.to.display();
        match step.source.kind {
            FileKind::Directory if options.recursive => self.copy_directory(step, options).boxed(),
            FileKind::Directory => {
                let why = format!("{} is a directory (not copied)", step.from.display());
                let error = FsError::refused(Refusal::IsDirectory, "cp", step.from, why);
                async { Err(error) }.boxed()
            }
            FileKind::File | FileKind::CharacterDevice | FileKind::BlockDevice => {
                self.copy_one(step, options).boxed()
            }
            FileKind::Symlink => self.copy_link(step, options).boxed(),
            FileKind::Socket => refused(
                Refusal::CopySocket,
                format!("cannot copy a socket file: {shown}"),
            ),
            FileKind::Fifo => refused(
                Refusal::CopyFifo,
                format!("cannot copy a FIFO pipe: {shown}"),
            ),
            FileKind::Unknown => {
                let why = format!("cannot copy an unknown file type: {shown}");
                refused(Refusal::CopyUnknown, why)
            }
        }
    }

    async fn copy_one(&self, step: Step<'_>, options: CopyOptions) -> Result<(), FsError> {
        if step.target.is_some() {
            match options.existing {
                Existing::Overwrite => self.unlink(step.to).await?,
                Existing::Keep => return Ok(()),
                Existing::Refuse => return Err(exists(step.to)),
            }
        }
        self.copy_file(step.from, step.to, Replace::Yes).await?;
        self.copy_times(&step, options).await?;
        self.chmod(step.to, step.source.permissions).await
    }

    async fn copy_times(&self, step: &Step<'_>, options: CopyOptions) -> Result<(), FsError> {
        if !options.preserve_timestamps {
            return Ok(());
        }
        let Stat {
            accessed, modified, ..
        } = step.source;
        self.utimes(step.to, accessed, modified).await
    }

    async fn copy_directory(&self, step: Step<'_>, options: CopyOptions) -> Result<(), FsError> {
        if step.target.is_some() && options.existing == Existing::Refuse {
            return Err(exists(step.to));
        }
        if step.target.is_none() {
            self.mkdir(step.to, 0o777).await?;
        }
        for entry in self.opendir(step.from).await? {
            let from = lexical::child(step.from, &entry.name);
            let to = lexical::child(step.to, &entry.name);
            let inner = self.look(&from, &to, options).await?;
            self.copy(inner, options).await?;
        }
        self.copy_times(&step, options).await?;
        match step.target {
            Some(_) => Ok(()),
            None => self.chmod(step.to, step.source.permissions).await,
        }
    }

    async fn copy_link(&self, step: Step<'_>, options: CopyOptions) -> Result<(), FsError> {
        let mut text = self.readlink(step.from).await?;
        if options.links != Links::Verbatim {
            text = resolved(step.from, text);
        }
        let existing = match self.readlink(step.to).await {
            _ if step.target.is_none() => return self.symlink(&text, step.to).await,
            Err(error) if error.is(Errno::INVAL) => return self.symlink(&text, step.to).await,
            other => resolved(step.to, other?),
        };
        let leads_to_directory = self.stat(step.from).await?.is_directory();
        if leads_to_directory && text != existing {
            if lexical::contains(&text, &existing) {
                let (one, other) = (text.display(), existing.display());
                let why = format!("cannot copy {one} to a subdirectory of self {other}");
                return Err(FsError::refused(Refusal::CopyInvalid, "cp", step.to, why));
            }
            if lexical::contains(&existing, &text) {
                let why = format!(
                    "cannot overwrite {} with {}",
                    existing.display(),
                    text.display()
                );
                let refusal = Refusal::CopyIntoLinked;
                return Err(FsError::refused(refusal, "cp", step.to, why));
            }
        }
        self.unlink(step.to).await?;
        self.symlink(&text, step.to).await
    }
}

/// Where a link leads, from wherever it is read.
fn resolved(link: &Path, text: PathBuf) -> PathBuf {
    if text.is_absolute() {
        text
    } else {
        lexical::normal(&lexical::dirname(link).join(text))
    }
}

fn into_itself(from: &Path, to: &Path) -> FsError {
    let (from, shown) = (from.display(), to.display());
    let why = format!("cannot copy {from} to a subdirectory of self {shown}");
    FsError::refused(Refusal::CopyInvalid, "cp", to, why)
}

fn exists(path: &Path) -> FsError {
    let why = format!("{} already exists", path.display());
    FsError::refused(Refusal::CopyExists, "cp", path, why)
}
