//! The archive that brings the helper into a container: two entries in the tape format.

use std::{io, io::Write as _};

const BLOCK: usize = 512;

/// Where the helper is in every container.
pub(super) const DIR: &str = "/.bulkhead";
pub(super) const HELPER: &str = "/.bulkhead/init";

/// The directory and the program, as entries relative to the root; without the directory where that is a mount.
pub(super) fn with_helper(program: &[u8], dir: Dir) -> io::Result<Vec<u8>> {
    let mut archive = Vec::with_capacity(program.len() + 6 * BLOCK);
    let name = match dir {
        Dir::Made => {
            archive.write_all(&header(".bulkhead/", 0, b'5')?)?;
            ".bulkhead/init"
        }
        Dir::Mounted => "init",
    };
    archive.write_all(&header(name, program.len(), b'0')?)?;
    archive.write_all(program)?;
    // Whole blocks, then two empty ones.
    archive.resize(archive.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
    Ok(archive)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dir {
    Made,
    Mounted,
}

/// A `ustar` header: root's, readable and executable by everybody.
fn header(name: &str, size: usize, kind: u8) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000755\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // The checksum counts itself as blanks.
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn h12_the_archive_is_one_that_tar_reads() {
        let archive = with_helper(b"program", Dir::Made).expect("it packs");
        let mut tar = Command::new("tar")
            .args(["-tvf", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tar is there");
        let mut stdin = tar.stdin.take().expect("it is piped");
        stdin.write_all(&archive).expect("tar reads");
        drop(stdin);
        let listed = tar.wait_with_output().expect("tar ends").stdout;
        let listed = String::from_utf8_lossy(&listed);
        let lines: Vec<&str> = listed.lines().collect();
        assert!(
            lines[0].starts_with("drwxr-xr-x 0/0") && lines[0].ends_with(" .bulkhead/"),
            "{listed}"
        );
        assert!(
            lines[1].starts_with("-rwxr-xr-x 0/0") && lines[1].ends_with(" .bulkhead/init"),
            "{listed}"
        );
    }
}
