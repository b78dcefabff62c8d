//! The user's own configuration for a host, as `ssh -G` reads it, which connects to nothing.

use std::{collections::HashMap, process::Stdio};

use super::SshConfig;

/// The keywords that matter here, with their first values.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings(HashMap<String, String>);

impl Settings {
    /// Reads it. Where `ssh` cannot, nothing is known; connecting will say why.
    pub(super) fn read(config: &SshConfig) -> Self {
        let mut command = std::process::Command::new(&config.program);
        command.env_clear().envs(&config.env);
        command.args(config.arguments()).arg("-G").arg(&config.host);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().map(|output| output.stdout);
        Self::parse(&String::from_utf8_lossy(&output.unwrap_or_default()))
    }

    fn parse(text: &str) -> Self {
        let mut found = HashMap::new();
        for line in text.lines() {
            if let Some((keyword, value)) = line.split_once(' ') {
                let keyword = keyword.to_ascii_lowercase();
                let value = value.trim().to_owned();
                found
                    .entry(keyword)
                    .and_modify(|all: &mut String| {
                        all.push(' ');
                        all.push_str(&value);
                    })
                    .or_insert(value);
            }
        }
        Self(found)
    }

    pub(super) fn get(&self, keyword: &str) -> Option<&str> {
        self.0.get(keyword).map(String::as_str)
    }

    pub(super) fn keeps_alive(&self) -> bool {
        self.get("serveraliveinterval")
            .is_some_and(|interval| interval != "0")
    }

    /// Who is reached where, in words.
    pub(super) fn target(&self) -> Option<String> {
        let (user, host, port) = (self.get("user")?, self.get("hostname")?, self.get("port")?);
        Some(format!("{user}@{host}, port {port}"))
    }

    /// What the configuration gives away or weakens (H16), a sentence each.
    pub(super) fn weakened(&self) -> Vec<String> {
        let mut found = Vec::new();
        let is = |keyword: &str, value: &str| self.get(keyword) == Some(value);
        if self.get("forwardagent").is_some_and(|value| value != "no") {
            found.push(
                "ForwardAgent is on: the agent can use every key of your ssh agent, on every machine that takes it. \
                 Set `ForwardAgent no` for this host."
                    .to_owned(),
            );
        }
        if self.names_a_password() {
            found.push(
                "The ssh configuration of this host holds a password, which other processes of this machine can read. \
                 Use a key."
                    .to_owned(),
            );
        }
        for keyword in ["passwordauthentication", "kbdinteractiveauthentication"] {
            if is(keyword, "yes") && is("pubkeyauthentication", "no") {
                found.push("Only a password opens this host's account, which nobody can type here. Use a key.".to_owned());
                break;
            }
        }
        if is("stricthostkeychecking", "no") || is("stricthostkeychecking", "false") {
            found.push(
                "The ssh configuration accepts unknown host keys. Bulkhead does not, but other uses of it do.".to_owned(),
            );
        }
        found
    }

    fn names_a_password(&self) -> bool {
        [
            "proxycommand",
            "setenv",
            "localcommand",
            "knownhostscommand",
        ]
        .iter()
        .any(|keyword| {
            let value = self.get(keyword).unwrap_or_default().to_ascii_lowercase();
            ["sshpass", "password", "passwd", "-pw "]
                .iter()
                .any(|word| value.contains(word))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h16_agent_forwarding_and_passwords_are_weakenings() {
        let plain = "user me\nhostname h\nport 22\nforwardagent no\nserveraliveinterval 0\n";
        let settings = Settings::parse(plain);
        assert_eq!(settings.weakened(), Vec::<String>::new());
        assert!(!settings.keeps_alive());
        assert_eq!(settings.target().as_deref(), Some("me@h, port 22"));
        let weak = "forwardagent /run/agent\nproxycommand sshpass -p hunter2 ssh jump -W %h:%p\n\
                    stricthostkeychecking no\nserveraliveinterval 5\n";
        let settings = Settings::parse(weak);
        assert_eq!(settings.weakened().len(), 3, "{:?}", settings.weakened());
        assert!(settings.keeps_alive());
    }
}
