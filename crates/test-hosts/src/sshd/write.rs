//! The files that a server and its client need.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

use super::{Account, Sshd, SshdOptions};

/// User and group id of the unprivileged account.
const UNPRIVILEGED: u32 = 2000;

pub(super) fn everything(dir: &Path, address: SocketAddr, mark: &str, options: &SshdOptions) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    for key in ["host_key", "user_key"] {
        make_key(&dir.join(key));
    }
    fs::copy(dir.join("user_key.pub"), dir.join("authorized_keys")).unwrap();
    make_home(&dir.join("home"), options);
    fs::write(
        dir.join("sshd_config"),
        server_config(dir, address, mark, options),
    )
    .unwrap();
    fs::write(dir.join("ssh_config"), client_config(dir, address, options)).unwrap();
    let host_key = fs::read_to_string(dir.join("host_key.pub")).unwrap();
    let known = format!("[{}]:{} {host_key}", address.ip(), address.port());
    fs::write(dir.join("known_hosts"), known).unwrap();
    write_accounts(dir, options);
    fs::write(dir.join("serve.sh"), serve(dir)).unwrap();
}

pub(super) fn user(options: &SshdOptions) -> String {
    match (is_root(), options.account) {
        (true, Account::Root) => "root".to_owned(),
        (true, Account::Unprivileged) => "tester".to_owned(),
        (false, _) => output(Command::new("id").arg("-un")),
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn make_key(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]);
    output(command.arg(path));
}

fn make_home(home: &Path, options: &SshdOptions) {
    fs::create_dir(home).unwrap();
    if is_root() && options.account == Account::Unprivileged {
        chown(home, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    }
}

fn server_config(dir: &Path, address: SocketAddr, mark: &str, options: &SshdOptions) -> String {
    let mut text = String::new();
    for line in &options.lines {
        text.push_str(line);
        text.push('\n');
    }
    if let Some(alive) = options.client_alive {
        text.push_str(&format!(
            "ClientAliveInterval {}\nClientAliveCountMax {}\n",
            alive.interval_s, alive.count_max
        ));
    }
    let dir = dir.display();
    text.push_str(&format!(
        "ListenAddress {address}\n\
         HostKey {dir}/host_key\n\
         AuthorizedKeysFile {dir}/authorized_keys\n\
         StrictModes no\n\
         UsePAM no\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         PermitRootLogin yes\n\
         AllowAgentForwarding yes\n\
         UseDNS no\n\
         PrintMotd no\n\
         PrintLastLog no\n\
         PidFile none\n\
         LogLevel VERBOSE\n\
         SetEnv BULKHEAD_TEST_SSHD={mark}\n\
         MaxSessions {}\n\
         Subsystem sftp {}\n",
        options.max_sessions, options.sftp
    ));
    text
}

fn client_config(dir: &Path, address: SocketAddr, options: &SshdOptions) -> String {
    let (alias, dir, user) = (Sshd::ALIAS, dir.display(), user(options));
    format!(
        "Host {alias}\n  HostName {}\n  Port {}\n  User {user}\n  IdentityFile {dir}/user_key\n\
         Host *\n  IdentitiesOnly yes\n  IdentityAgent none\n  BatchMode yes\n  StrictHostKeyChecking yes\n\
         \x20 UserKnownHostsFile {dir}/known_hosts\n  GlobalKnownHostsFile /dev/null\n",
        address.ip(),
        address.port()
    )
}

/// Accounts that only the fixture's mount namespaces show.
fn write_accounts(dir: &Path, options: &SshdOptions) {
    let home = |account| {
        if options.account == account {
            dir.join("home")
        } else {
            "/nonexistent".into()
        }
    };
    let (root, other, shell) = (
        home(Account::Root),
        home(Account::Unprivileged),
        options.shell.display(),
    );
    let passwd = format!(
        "root:x:0:0:root:{}:{shell}\ntester:x:{UNPRIVILEGED}:{UNPRIVILEGED}::{}:{shell}\n\
         sshd:x:102:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
        root.display(),
        other.display()
    );
    fs::write(dir.join("passwd"), passwd).unwrap();
    let group = format!("root:x:0:\ntty:x:5:\ntester:x:{UNPRIVILEGED}:\nnogroup:x:65534:\n");
    fs::write(dir.join("group"), group).unwrap();
    // `*` is no password; `!` would be a locked account, which sshd refuses.
    let shadow = "root:*:19000:0:99999:7:::\ntester:*:19000:0:99999:7:::\n";
    fs::write(dir.join("shadow"), shadow).unwrap();
}

/// Starts the server for the connection on its streams.
fn serve(dir: &Path) -> String {
    let dir = dir.display();
    let sshd = format!("exec /usr/sbin/sshd -i -f {dir}/sshd_config -E {dir}/log");
    if !is_root() {
        return format!("{sshd}\n");
    }
    format!(
        "mkdir -p -m 0755 /run/sshd\n\
         exec unshare --mount --propagation slave /bin/sh -c '\
         mount --bind {dir}/passwd /etc/passwd && mount --bind {dir}/group /etc/group && \
         mount --bind {dir}/shadow /etc/shadow && {sshd}'\n"
    )
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}
