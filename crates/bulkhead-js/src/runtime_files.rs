//! Where the files are that came with V8's library.

use std::path::{Path, PathBuf};

const LIBRARY: &str = "libmini_racer.so";
const ICU_DATA: &str = "icudtl.dat";

#[derive(Debug, thiserror::Error)]
pub enum RuntimeFilesError {
    #[error("reading which libraries this process has loaded")]
    Maps(#[source] std::io::Error),
    #[error("this process has not loaded V8's library")]
    NotLoaded,
    #[error("{0} is missing: it belongs beside V8's library")]
    Missing(PathBuf),
}

/// The language data: it lies beside the library, wherever the linker found that.
pub fn icu_data() -> Result<PathBuf, RuntimeFilesError> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(RuntimeFilesError::Maps)?;
    let library = library_in(&maps).ok_or(RuntimeFilesError::NotLoaded)?;
    let data = library.with_file_name(ICU_DATA);
    match data.is_file() {
        true => Ok(data),
        false => Err(RuntimeFilesError::Missing(data)),
    }
}

/// The path is what follows the fifth column, and may have spaces in it.
fn library_in(maps: &str) -> Option<PathBuf> {
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
        .find(|path| path.file_name().is_some_and(|name| name == LIBRARY))
        .map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::library_in;

    #[test]
    fn d11_the_library_is_found_among_what_is_loaded() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 11 /usr/bin/cat\n\
                    7f00-7f01 r--p 00000000 fe:00 12                  /opt/a b/libmini_racer.so\n\
                    7f02-7f03 rw-p 00000000 00:00 0  [heap]\n";
        assert_eq!(library_in(maps), Some("/opt/a b/libmini_racer.so".into()));
        assert_eq!(library_in("7f02-7f03 rw-p 00000000 00:00 0 [heap]\n"), None);
    }
}
