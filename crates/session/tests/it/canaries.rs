//! H7, cases 31 and 33: nothing of the executor's or the control plane's secrets is in the sandbox, by whatever
//! way a process there is started.

use bulkhead_fake_model::Script;
use bulkhead_model::{Stream, Work};
use bulkhead_session::agents::{Overrides, resolve};
use secrecy::SecretString;

use crate::world::{Cancel, TOKEN, World, command, program, run};

/// In the environment of this process, as a control plane's would be; `.config` cannot set it for one test, so
/// it is what every process of a test run has.
fn of_this_process() -> Vec<String> {
    let names = ["CARGO_MANIFEST_DIR", "NEXTEST_RUN_ID", "CARGO_PKG_NAME"];
    names
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .collect()
}

/// Looks for each word of standard input's first lines everywhere a process inside can read: all of `/proc`'s
/// environments, arguments, descriptors and memory maps, and all files that are not the system's own.
const SEARCH: &str = r#"
for w in $WORDS; do
  for f in /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ /proc/[0-9]*/cmdline; do
    case $f in /proc/$$/*|/proc/self/*) continue ;; esac
    tr '\0' '\n' < "$f" 2>/dev/null | grep -v '^WORDS=' | grep -qF -- "$w" && echo "FOUND $w in $f"
  done
  for d in /proc/[0-9]*/fd; do ls -l $d 2>/dev/null | grep -qF -- "$w" && echo "FOUND $w in $d"; done
  grep -rlF -- "$w" /workspace /home /tmp /run /etc /dev/shm /var 2>/dev/null | sed "s|^|FOUND $w in |"
done
echo searched
"#;

struct Canaries {
    never: Vec<String>,
}

impl Canaries {
    /// Plants canaries where the executor and the control plane have their secrets: environment, files beside
    /// the gateway's socket, and the delivery itself.
    fn plant(world: &World) -> Self {
        let dir = world.dir.path();
        std::fs::write(dir.join("key"), "canary-master-key-aaaaaaaa").unwrap();
        std::fs::write(dir.join("upstream"), "canary-upstream-bbbbbbbb").unwrap();
        let mut never = of_this_process();
        never.extend(["canary-master-key-aaaaaaaa", "canary-upstream-bbbbbbbb"].map(str::to_owned));
        never.extend(["canary-undeclared-cccccccc", "canary-proxy-dddddddd"].map(str::to_owned));
        never.push(dir.display().to_string());
        Self { never }
    }

    fn words(&self) -> String {
        self.never.join(" ")
    }
}

fn assert_clean(output: &str) {
    assert!(output.contains("searched"), "the search ran: {output}");
    assert!(!output.contains("FOUND"), "{output}");
}

#[tokio::test]
async fn h7_case_31_no_canary_is_found_by_a_command() {
    let world = World::new(Script::Say(String::new())).await;
    let canaries = Canaries::plant(&world);
    let mut order = world.order(command(SEARCH));
    order.env.insert("WORDS".to_owned(), canaries.words());
    let mut delivery = world.delivery(order);
    // A secret that the order does not name stays outside, whatever the executor sent along.
    let undeclared = SecretString::from("canary-undeclared-cccccccc");
    delivery
        .secrets
        .insert("UNDECLARED".parse().unwrap(), undeclared);
    delivery.machine.proxy = Some("http://user:canary-proxy-dddddddd@192.0.2.1:3128".into());
    let phase = run(delivery, vec![], Cancel::Never).await;
    assert_clean(&phase.succeeded().output(Stream::Stdout));
}

/// H7, case 33: the way on which an agent is started carries no secret of the executor either.
#[tokio::test]
async fn case_33_no_canary_is_found_through_an_agents_start() {
    let world = World::new(Script::Say(String::new())).await;
    let canaries = Canaries::plant(&world);
    let overrides = Overrides {
        args: vec!["/home/agent/steps.yaml".to_owned()],
        ..Overrides::default()
    };
    let mut agent = resolve("scripted", &overrides).unwrap().spec;
    agent
        .home_files
        .insert("search.sh".to_owned(), SEARCH.to_owned());
    let steps = "steps: [{run: 'sh /home/agent/search.sh'}]".to_owned();
    agent.home_files.insert("steps.yaml".to_owned(), steps);
    let mut order = world.order(Work::Agent {
        agent,
        prompt: "x".to_owned(),
    });
    order.env.insert("WORDS".to_owned(), canaries.words());
    let mut delivery = world.delivery(order);
    delivery.program = Some(program());
    let phase = run(delivery, vec![], Cancel::Never).await;
    let events = format!("{:?}", phase.succeeded().agent());
    // The command line of the step is an event of its own, so only the output is looked at.
    assert_clean(&events);
}

#[tokio::test]
async fn h7_what_the_agent_does_get_is_in_its_environment_and_nowhere_else() {
    let world = World::new(Script::Say(String::new())).await;
    let script = r#"
env | grep -F canary | cut -d= -f1 | sort | tr '\n' ' '
grep -rlF canary-''phase /workspace /home /tmp /run /etc /dev/shm /var 2>/dev/null
for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -F canary-''phase; done
cat /proc/1/environ /proc/1/cmdline 2>/dev/null | tr '\0' ' ' | grep -F canary-''phase
git config --list --show-origin | grep -F canary-''phase
git remote -v | grep -F canary-''phase
echo searched
"#;
    let mut order = world.order(command(script));
    let claude = resolve("claude", &Overrides::default()).unwrap();
    order.models = claude.models;
    order.secrets = vec!["DEPLOY_KEY".parse().unwrap()];
    let mut delivery = world.delivery(order);
    let secret = SecretString::from("canary-declared-eeeeeeee");
    delivery
        .secrets
        .insert("DEPLOY_KEY".parse().unwrap(), secret);
    let phase = run(delivery, vec![], Cancel::Never).await;
    let output = phase.succeeded().output(Stream::Stdout);
    assert_eq!(output, "ANTHROPIC_API_KEY DEPLOY_KEY searched\n");
    assert!(!format!("{:?}", phase.report).contains(TOKEN));
}
