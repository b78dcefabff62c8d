//! Reading a `Start`: from what the platform sent to what may be believed of it.

use std::{collections::HashSet, time::Duration};

use bulkhead_model::{
    network::{Host, HostName, NetworkPolicy},
    plugin::{Demands, InvocationKind, InvocationLimits, Lower},
};
use bulkhead_wire::isolates::{Kind, Start};
use secrecy::SecretString;

use crate::{bundles::BundleHash, context::Authority};

const NAME_CHARS_MAX: usize = 128;
const HANDLER_STEPS_MAX: usize = 8;
const HANDLER_STEP_BYTES_MAX: usize = 256;
const INPUT_BYTES_MAX: usize = 4 << 20;
const SETTINGS_BYTES_MAX: usize = 256 << 10;
const FILE_BYTES_MAX: usize = 1024;
const LIST_MAX: usize = 1024;

/// One invocation as the platform wants it.
#[derive(Debug)]
pub struct Order {
    pub authority: Authority,
    pub handler: Vec<String>,
    pub input_json: String,
    pub settings_json: String,
    pub file: String,
    pub bundle: BundleHash,
    pub token: SecretString,
}

/// What is wrong with a `Start`: the platform's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("the field `{0}` of Start is missing or unknown")]
    Missing(&'static str),
    #[error("the field `{0}` of Start is too long")]
    TooLong(&'static str),
    #[error("the field `{field}` of Start: {problem}")]
    Network {
        field: &'static str,
        problem: String,
    },
}

impl TryFrom<Start> for Order {
    type Error = OrderError;

    fn try_from(start: Start) -> Result<Self, OrderError> {
        check_lengths(&start)?;
        let kind = kind(start.kind()).ok_or(OrderError::Missing("kind"))?;
        let bundle = BundleHash::try_from(start.bundle_sha256.as_slice())
            .map_err(|_| OrderError::Missing("bundle_sha256"))?;
        let limits = limits(kind, &start);
        let egress = policy(&start.egress)?;
        Ok(Self {
            authority: Authority {
                invocation: start.invocation,
                installation: start.installation,
                kind,
                limits,
                secrets: start.secrets.into_iter().collect(),
                permissions: start.permissions.into_iter().collect(),
                egress,
                installer_hosts: installer_hosts(&start.installer_hosts)?,
            },
            handler: start.handler,
            input_json: start.input_json,
            settings_json: start.settings_json,
            file: start.file,
            bundle,
            token: start.token.into(),
        })
    }
}

fn limits(kind: InvocationKind, start: &Start) -> InvocationLimits {
    let seconds = |timeout: &u32| Duration::from_secs((*timeout).into());
    let demands = Demands {
        transcodes: Demands::transcoding(&start.permissions),
        ssh_commands: start.ssh_command_timeouts_s.iter().map(seconds).collect(),
        attachments: start.attachments,
    };
    let asked = start.lower.unwrap_or_default();
    let given = |value: u64| (value > 0).then_some(value);
    InvocationLimits::of(kind, &demands).lowered(Lower {
        wall: given(asked.wall_ms).map(Duration::from_millis),
        result_bytes: given(asked.result_bytes),
    })
}

fn check_lengths(start: &Start) -> Result<(), OrderError> {
    for (field, text) in [
        ("invocation", &start.invocation),
        ("installation", &start.installation),
    ] {
        if text.is_empty() {
            return Err(OrderError::Missing(field));
        }
        if text.chars().count() > NAME_CHARS_MAX {
            return Err(OrderError::TooLong(field));
        }
    }
    if start.handler.is_empty() {
        return Err(OrderError::Missing("handler"));
    }
    let handler_is_long = start.handler.len() > HANDLER_STEPS_MAX
        || start
            .handler
            .iter()
            .any(|step| step.len() > HANDLER_STEP_BYTES_MAX);
    let too_long = [
        ("handler", handler_is_long),
        ("input_json", start.input_json.len() > INPUT_BYTES_MAX),
        (
            "settings_json",
            start.settings_json.len() > SETTINGS_BYTES_MAX,
        ),
        ("file", start.file.len() > FILE_BYTES_MAX),
        ("secrets", start.secrets.len() > LIST_MAX),
        ("permissions", start.permissions.len() > LIST_MAX),
        ("installer_hosts", start.installer_hosts.len() > LIST_MAX),
        (
            "ssh_command_timeouts_s",
            start.ssh_command_timeouts_s.len() > LIST_MAX,
        ),
    ];
    match too_long.into_iter().find(|(_, is_long)| *is_long) {
        Some((field, _)) => Err(OrderError::TooLong(field)),
        None => Ok(()),
    }
}

fn policy(entries: &[String]) -> Result<NetworkPolicy, OrderError> {
    NetworkPolicy::from_list(entries).map_err(|problem| OrderError::Network {
        field: "egress",
        problem: problem.to_string(),
    })
}

fn installer_hosts(names: &[String]) -> Result<HashSet<HostName>, OrderError> {
    let wrong = |problem: String| OrderError::Network {
        field: "installer_hosts",
        problem,
    };
    let read = |name: &String| match Host::parse(name) {
        Ok(Host::Name(name)) => Ok(name),
        Ok(Host::Ip(address)) => Err(wrong(format!("{address} is an address, not a name"))),
        Err(error) => Err(wrong(error.to_string())),
    };
    names.iter().map(read).collect()
}

fn kind(kind: Kind) -> Option<InvocationKind> {
    Some(match kind {
        Kind::Unspecified => return None,
        Kind::Tool => InvocationKind::Tool,
        Kind::Middleware => InvocationKind::Middleware,
        Kind::Lifecycle => InvocationKind::Lifecycle,
        Kind::WebSearch => InvocationKind::WebSearch,
        Kind::WebFetch => InvocationKind::WebFetch,
        Kind::ChatComplete => InvocationKind::ChatComplete,
        Kind::Compaction => InvocationKind::Compaction,
        Kind::Decision => InvocationKind::Decision,
        Kind::Speak => InvocationKind::Speak,
        Kind::Voices => InvocationKind::Voices,
        Kind::Transcribe => InvocationKind::Transcribe,
        Kind::ChannelReceive => InvocationKind::ChannelReceive,
        Kind::ChannelSend => InvocationKind::ChannelSend,
        Kind::ConnectionOpen => InvocationKind::ConnectionOpen,
        Kind::ConnectionReceive => InvocationKind::ConnectionReceive,
        Kind::ConnectionTimer => InvocationKind::ConnectionTimer,
        Kind::SshHook => InvocationKind::SshHook,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn start() -> Start {
        Start {
            invocation: "i-1".into(),
            installation: "weather@acme".into(),
            kind: Kind::Middleware.into(),
            handler: vec!["tools".into(), "weather".into()],
            bundle_sha256: vec![7; 32],
            egress: vec!["api.example.com".into()],
            ..Start::default()
        }
    }

    fn refused(change: impl FnOnce(&mut Start)) -> String {
        let mut start = start();
        change(&mut start);
        Order::try_from(start).unwrap_err().to_string()
    }

    /// P20, P21: limits come from the kind, and a caller only lowers them.
    #[test]
    fn p20_a_start_has_the_limits_of_its_kind_or_lower_ones() {
        let mut asked = start();
        let wall = |start: Start| {
            Order::try_from(start)
                .unwrap()
                .authority
                .limits
                .wall
                .as_millis()
        };
        assert_eq!(wall(asked.clone()), 5_000);
        asked.lower = Some(bulkhead_wire::isolates::Lower {
            wall_ms: 300,
            result_bytes: 0,
        });
        assert_eq!(wall(asked.clone()), 300);
        asked.lower = Some(bulkhead_wire::isolates::Lower {
            wall_ms: 1 << 40,
            result_bytes: 1 << 40,
        });
        assert_eq!(wall(asked), 5_000);
    }

    #[test]
    fn a_start_that_makes_no_sense_says_which_field() {
        assert!(refused(|start| start.kind = 99).contains("`kind`"));
        assert!(refused(|start| start.invocation.clear()).contains("`invocation`"));
        assert!(refused(|start| start.handler.clear()).contains("`handler`"));
        assert!(refused(|start| start.bundle_sha256 = vec![1; 31]).contains("`bundle_sha256`"));
        assert!(refused(|start| start.input_json = " ".repeat(5 << 20)).contains("`input_json`"));
        assert!(refused(|start| start.egress = vec!["http://x/".into()]).contains("`egress`"));
        assert!(
            refused(|start| start.installer_hosts = vec!["10.0.0.1".into()]).contains("not a name")
        );
    }
}
