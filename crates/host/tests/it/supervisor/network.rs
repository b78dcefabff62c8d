//! A network of the test's own between client and server, with a cable that can be pulled.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    os::fd::AsFd as _,
    process::{Child, Command, Stdio},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A namespace for the server, and two ends of a cable to it. Dropping it takes all of it away.
pub(super) struct Network {
    namespace: Child,
    cable: String,
    address: String,
}

impl Network {
    pub(super) fn new() -> Self {
        let mut namespace = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo up && exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = namespace.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let pid = namespace.id();
        // Both by this process's number, so that several may run side by side.
        let (cable, net) = (
            format!("bh{pid}"),
            format!("10.{}.{}", 64 + pid / 256 % 128, pid % 256),
        );
        let far = format!("bf{pid}");
        ip(&[
            "link",
            "add",
            &cable,
            "type",
            "veth",
            "peer",
            "name",
            &far,
            "netns",
            &pid.to_string(),
        ]);
        ip(&["address", "add", &format!("{net}.1/24"), "dev", &cable]);
        ip(&["link", "set", &cable, "up"]);
        let network = Self {
            namespace,
            cable,
            address: format!("{net}.2"),
        };
        let address = network.address.clone();
        network.inside(move || {
            ip(&["address", "add", &format!("{address}/24"), "dev", &far]);
            ip(&["link", "set", &far, "up"]);
        });
        network
    }

    pub(super) fn listener(&self) -> TcpListener {
        let address = self.address.clone();
        self.inside(move || TcpListener::bind((address.as_str(), 0)).unwrap())
    }

    /// From now on nothing arrives, and nobody is told.
    pub(super) fn cut(&self) {
        ip(&["link", "set", &self.cable, "down"]);
    }

    /// On a thread of its own, whose end is the way out of the namespace.
    fn inside<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> T {
        let namespace =
            std::fs::File::open(format!("/proc/{}/ns/net", self.namespace.id())).unwrap();
        let inside = thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        });
        inside.join().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["link", "delete", &self.cable])
            .status();
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).output().unwrap();
    assert!(
        done.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}
