//! Public addresses without a network: two network namespaces of our own, a cable between them, and
//! addresses that are public by their range. Needs the right to make namespaces, as the sandbox does.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use bulkhead_egress::{AddressClass, Target, Why};

use crate::support::{
    dns::{DnsServer, reply},
    refusal, rules, strict,
};

const HERE: &str = "93.184.215.1";
const THERE: &str = "93.184.215.2";

/// N15, N17, case 52: run inside a fresh namespace, see below.
#[test]
fn n17_public_addresses_in_namespaces_of_our_own() {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "netns::inside", "--nocapture"])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{out}\n{err}"
    );
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// The far namespace: it holds a server on [`THERE`], port 443, as long as its process lives.
struct Far(Child);

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn far_side() -> Far {
    // It waits for the cable, then listens; `accept` is never called, the kernel completes the handshake.
    let program = format!(
        "import socket,sys,time\nprint('up',flush=True);sys.stdin.readline()\ns=socket.create_server(('{THERE}',443));print('ready',flush=True);time.sleep(600)"
    );
    let mut child = Command::new("unshare")
        .args(["--net", "--", "python3", "-c", &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let far = Far(child);
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    let pid = far.0.id();
    ip(&format!(
        "link add near0 type veth peer name far0 netns {pid}"
    ));
    ip(&format!("addr add {HERE}/24 dev near0"));
    ip("link set near0 up");
    let inside = format!("ip addr add {THERE}/24 dev far0 && ip link set far0 up");
    let status = Command::new("nsenter")
        .args(["-t", &pid.to_string(), "-n", "sh", "-c", &inside])
        .status()
        .unwrap();
    assert!(status.success());
    use std::io::Write;
    let mut far = far;
    far.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    far
}

#[tokio::test]
#[ignore = "run by n17_public_addresses_in_namespaces_of_our_own inside a namespace"]
async fn inside() {
    ip("link set lo up");
    let _far = far_side();
    let dns = DnsServer::start(|name, before| match (name, before) {
        ("self.test.com", _) => reply(&[HERE]),
        ("flip.test.com", 1..) => reply(&["127.0.0.1"]),
        _ => reply(&[THERE]),
    });
    let egress = strict(&dns);

    // A public address that is another machine's is reached, and the answer's address is the peer.
    let target = Target::from_authority("there.test.com:443").unwrap();
    let link = egress
        .connect(&rules(&["there.test.com"]), &target)
        .await
        .unwrap();
    assert_eq!(link.peer_addr().unwrap().ip().to_string(), THERE);

    // N17, case 52: the first answer is used as it was checked; the flipped one is judged, and refused.
    let target = Target::from_authority("flip.test.com:443").unwrap();
    let link = egress
        .connect(&rules(&["flip.test.com"]), &target)
        .await
        .unwrap();
    assert_eq!(link.peer_addr().unwrap().ip().to_string(), THERE);
    let why = refusal(&egress, "flip.test.com").await.why;
    assert!(
        matches!(
            why,
            Why::Address {
                class: AddressClass::Loopback,
                ..
            }
        ),
        "{why:?}"
    );

    // Case 52: an address of this very machine is refused though its range is public.
    let why = refusal(&egress, "self.test.com").await.why;
    assert!(
        matches!(
            why,
            Why::Address {
                class: AddressClass::OwnMachine,
                ..
            }
        ),
        "{why:?}"
    );
}
