//! The SFTP client against real servers: every failure is compared with what the kernel itself says to the same operation.

mod errors;
mod openssh;
mod ours;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bulkhead_host::{Connect, HostError, SftpProvider, SftpStream};

/// OpenSSH's server as a child of the test.
#[derive(Debug)]
pub(crate) struct Served {
    argv: Vec<String>,
    dir: PathBuf,
}

#[async_trait]
impl Connect for Served {
    async fn connect(&self) -> Result<SftpStream, HostError> {
        let mut command = tokio::process::Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).current_dir(&self.dir);
        command.kill_on_drop(true);
        command.stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        Ok(SftpStream {
            writer: Box::new(child.stdin.take().unwrap()),
            reader: Box::new(child.stdout.take().unwrap()),
            guard: Box::new(child),
        })
    }
}

/// OpenSSH's own server, whose relative paths begin in `dir`.
pub(crate) fn openssh(dir: &Path) -> SftpProvider {
    serve(&["/usr/lib/openssh/sftp-server"], dir)
}

/// The same as a user who is nobody's owner.
pub(crate) fn openssh_unprivileged(dir: &Path) -> SftpProvider {
    let line = "setpriv --reuid 65534 --regid 65534 --clear-groups /usr/lib/openssh/sftp-server";
    serve(&line.split(' ').collect::<Vec<_>>(), dir)
}

fn serve(argv: &[&str], dir: &Path) -> SftpProvider {
    SftpProvider::new(Served {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        dir: dir.to_owned(),
    })
}
