//! The sandbox looked at from inside, for `bulkhead doctor` and for tests: each line says what was tried and what the kernel
//! answered. It runs as the agent, behind every wall, but as code of this program, so that it needs no other one in `/usr`.

use std::{
    fmt::Write as _,
    fs, io,
    net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use crate::sys::{self, check};

/// Nothing here has to wait: a route is there or not.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Tries what must not work, and what must, and writes `name: answer` lines.
pub(crate) fn report(output: &OwnedFd) -> io::Result<()> {
    let mut text = String::new();
    for (name, answer) in answers() {
        let answer = match answer {
            Ok(seen) => format!("ok {seen}"),
            Err(error) => format!("error {} {error}", error.raw_os_error().unwrap_or(0)),
        };
        let _ = writeln!(text, "{name}: {answer}");
    }
    sys::write_all(output.as_fd(), text.as_bytes())
}

type Answer = (&'static str, io::Result<String>);

fn answers() -> Vec<Answer> {
    let mut all = vec![
        ("connect-public", connect("1.1.1.1:443")),
        ("connect-public-v6", connect("[2606:4700:4700::1111]:443")),
        ("connect-metadata", connect("169.254.169.254:80")),
        ("send-public-dns", send_udp("8.8.8.8:53")),
        ("door-http", connect("127.0.0.1:3128")),
        ("door-dns", send_udp("127.0.0.1:53")),
        (
            "write-usr",
            fs::write("/usr/bulkhead-doctor", "x").map(|()| String::new()),
        ),
        (
            "write-root",
            fs::write("/bulkhead-doctor", "x").map(|()| String::new()),
        ),
        (
            "write-workspace",
            fs::write("/workspace/.bulkhead-doctor", "x").map(|()| String::new()),
        ),
        (
            "read-init-environ",
            fs::read_to_string("/proc/1/environ").map(|_| String::new()),
        ),
        (
            "write-sysctl",
            fs::write("/proc/sys/kernel/hostname", "x").map(|()| String::new()),
        ),
    ];
    let _ = fs::remove_file("/workspace/.bulkhead-doctor");
    all.extend(status_lines());
    all.extend(refused_calls());
    all
}

fn connect(address: &str) -> io::Result<String> {
    let address: SocketAddr = address
        .to_socket_addrs()?
        .next()
        .ok_or(io::ErrorKind::InvalidInput)?;
    TcpStream::connect_timeout(&address, CONNECT_LIMIT).map(|_| String::new())
}

fn send_udp(address: &str) -> io::Result<String> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(address)?;
    socket.send(&[0; 12]).map(|_| String::new())
}

/// Lines of `/proc/self/status` that tell about rights.
fn status_lines() -> Vec<Answer> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let names = [
        "Uid",
        "Gid",
        "Groups",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
    ];
    let value = |name: &'static str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        (
            name,
            line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .ok_or_else(|| io::ErrorKind::NotFound.into()),
        )
    };
    names.map(value).into()
}

fn refused_calls() -> Vec<Answer> {
    let done = |result: io::Result<i64>| result.map(|_| String::new());
    // SAFETY: each call gets numbers and null pointers only; none of them may succeed, and none would touch memory of this
    // process if it did.
    unsafe {
        vec![
            (
                "unshare-user",
                done(check(libc::unshare(libc::CLONE_NEWUSER))),
            ),
            (
                "mount",
                done(check(libc::mount(
                    c"none".as_ptr(),
                    c"/tmp".as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    std::ptr::null(),
                ))),
            ),
            (
                "ptrace-init",
                done(check(libc::ptrace(libc::PTRACE_ATTACH, 1, 0, 0))),
            ),
            ("signal-init", done(check(libc::kill(1, libc::SIGKILL)))),
            (
                "raw-socket",
                done(check(libc::socket(
                    libc::AF_INET,
                    libc::SOCK_RAW,
                    libc::IPPROTO_ICMP,
                ))),
            ),
            (
                "packet-socket",
                done(check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0))),
            ),
            (
                "keyctl",
                done(check(libc::syscall(libc::SYS_keyctl, 0, 0, 0, 0, 0))),
            ),
            ("bpf", done(check(libc::syscall(libc::SYS_bpf, 0, 0, 0)))),
            (
                "io-uring",
                done(check(libc::syscall(libc::SYS_io_uring_setup, 1, 0))),
            ),
            (
                "set-clock",
                done(check(libc::syscall(libc::SYS_clock_settime, 0, 0))),
            ),
        ]
    }
}
