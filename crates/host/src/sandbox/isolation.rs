//! What the sandbox's walls leave (H16), from its plan.

use bulkhead_sandbox::{Bind, Listener, Plan, Purpose, Transport, WORKSPACE_DIR, Workspace};

use crate::Layer;

pub(super) fn layer(plan: &Plan, host: String) -> Layer {
    Layer {
        kind: "sandbox",
        host,
        files: files(plan),
        network: network(&plan.listeners),
        credentials: "only what its processes are given; no environment, file or keyring of this machine".to_owned(),
        processes: "its own only: they have their own process numbers, no Linux capabilities and a list of allowed system \
                    calls, and end with the sandbox"
            .to_owned(),
        weakened: weakened(plan),
        supervision: Some("a control group that is killed as a whole when the session's process ends".to_owned()),
    }
}

fn files(plan: &Plan) -> String {
    let workspace = match &plan.workspace {
        Workspace::Image => "a file system of its own".to_owned(),
        Workspace::Tmpfs => "kept in memory".to_owned(),
        Workspace::Directory(dir) => format!("this machine's {}", dir.display()),
    };
    let mut text = format!(
        "{WORKSPACE_DIR} ({workspace}), its own home and temporary directories; the system directories read-only"
    );
    for bind in &plan.binds {
        text.push_str(&format!("; {} read-only", bind.source.display()));
    }
    text
}

fn network(listeners: &[Listener]) -> String {
    let places: Vec<_> = listeners
        .iter()
        .map(|listener| match listener.transport {
            Transport::Tcp => format!("port {}", listener.address),
            Transport::Udp => format!("UDP port {}", listener.address),
        })
        .collect();
    if places.is_empty() {
        return "none: it has a loopback interface of its own and nothing else".to_owned();
    }
    format!(
        "only what is served to it at {} of its own loopback interface",
        places.join(", ")
    )
}

fn weakened(plan: &Plan) -> Vec<String> {
    let mut found = Vec::new();
    if let Workspace::Directory(dir) = &plan.workspace {
        found.push(format!(
            "The workspace is the directory {} of this machine: what is written there stays, and other programs may trust it.",
            dir.display()
        ));
    }
    let listed = |bind: &&Bind| bind.purpose == Purpose::Listed;
    for bind in plan.binds.iter().filter(listed) {
        found.push(format!(
            "{} of this machine can be read inside.",
            bind.source.display()
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_model::{Limits, SandboxId};

    #[test]
    fn h16_the_summary_follows_the_plan() {
        let id = SandboxId::from_uuid(uuid::Uuid::from_u128(1));
        let mut plan = Plan::new(id, Limits::default(), Workspace::Image);
        let closed = layer(&plan, "sandbox".to_owned());
        assert!(closed.network.starts_with("none"), "{}", closed.network);
        assert_eq!(closed.weakened, Vec::<String>::new());
        plan.workspace = Workspace::Directory("/home/me/work".into());
        plan.binds = vec![Bind::own_program(
            "/usr/bin/bulkhead",
            "/opt/bulkhead/bin/bulkhead",
        )];
        assert_eq!(
            layer(&plan, "sandbox".to_owned()).weakened.len(),
            1,
            "our own program weakens nothing"
        );
        plan.binds.push(Bind::same_path("/opt/tools"));
        plan.listeners = vec![Listener::tcp(([127, 0, 0, 1], 3128).into())];
        let open = layer(&plan, "sandbox".to_owned());
        assert!(open.network.contains("127.0.0.1:3128"), "{}", open.network);
        assert!(
            open.files.contains("/opt/tools read-only"),
            "{}",
            open.files
        );
        assert_eq!(open.weakened.len(), 2);
    }
}
