//! Sessions over ssh, in containers, and nested, with a real sshd and real engines; and what never reaches any host.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
};

use bulkhead_test_hosts::{Account, ContainerEngine, Sshd, SshdOptions};
use rustix::process::{Signal, kill_process};

use crate::{
    program::{Ended, World},
    sessions::{begin, only, run, session, wait_until, worker},
};

fn ssh(sshd: &Sshd, more: &str) -> String {
    let config = sshd.client_config();
    format!(
        "{{host: {}, configFile: {}{more}}}",
        Sshd::ALIAS,
        config.display()
    )
}

/// An account that may use the engine of the machine.
fn over_the_engine() -> Sshd {
    Sshd::start_with(SshdOptions {
        account: Account::Root,
        ..SshdOptions::default()
    })
}

fn docker(engine: &ContainerEngine) -> String {
    format!(
        "{{image: '{}', socket: {}, user: '1000:1000', workdir: /tmp, mounts: [{{source: /usr, target: /usr, readOnly: true}}]}}",
        ContainerEngine::IMAGE,
        engine.socket().display()
    )
}

#[test]
fn h13_h14_a_command_over_ssh_runs_there_and_leaves_nothing() {
    let world = World::new();
    let sshd = Sshd::start();
    for more in ["", ", persistent: true"] {
        let yaml = format!(
            "run: id -un; pwd; cat notes\nplugs:\n  - ssh: {}\n  - workspace\n  - files: {{notes: 'a note'}}\n",
            ssh(&sshd, more)
        );
        let ended = run(&world, &yaml).expect(0);
        assert!(ended.stdout.starts_with(&sshd.user()), "{}", ended.stdout);
        assert!(
            ended.stdout.contains("/bulkhead-") && ended.stdout.contains("a note"),
            "{}",
            ended.stdout
        );
        let left: Vec<_> = std::fs::read_dir(sshd.home()).unwrap().flatten().collect();
        let left: Vec<_> = left
            .iter()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("bulkhead-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn h3_a_session_that_uses_nothing_on_an_ssh_host_never_connects() {
    let world = World::new();
    let sshd = Sshd::start();
    // The command before the host fails, so nothing behind it was used, and nothing is torn down there.
    let yaml = format!(
        "run: echo never\nplugs:\n  - ssh: {}\n  - env: {{A: b}}\n  - local\n  - setup: ['exit 3']\n",
        ssh(&sshd, "")
    );
    run(&world, &yaml).expect(1);
    assert_eq!(sshd.accepted(), 0);
}

#[test]
fn h12_a_command_in_a_container_which_goes_with_the_session() {
    let world = World::new();
    for engine in [ContainerEngine::docker(), ContainerEngine::podman()] {
        let before = engine.containers().len();
        let yaml = format!(
            "run: id -u; cat /tmp/notes\nplugs:\n  - docker: {}\n  - files: {{/tmp/notes: 'a note'}}\n",
            docker(&engine)
        );
        let ended = run(&world, &yaml).expect(0);
        assert_eq!(ended.stdout, "1000\na note");
        assert!(ended.stderr.contains("docker"), "{}", ended.stderr);
        assert!(engine.containers().len() <= before);
    }
}

#[test]
fn h4_hosts_nest_docker_over_ssh() {
    let world = World::new();
    let engine = ContainerEngine::docker();
    let sshd = over_the_engine();
    let yaml = format!(
        "run: id -u\nplugs:\n  - ssh: {}\n  - setup: ['id -un > where']\n  - docker: {}\n",
        ssh(&sshd, ""),
        docker(&engine)
    );
    let ended = run(&world, &yaml).expect(0);
    assert_eq!(ended.stdout, "1000\n");
    let there = std::fs::read_to_string(sshd.home().join("where")).unwrap();
    assert_eq!(there.trim(), sshd.user());
}

#[test]
fn h11_a_sandbox_on_another_machine_has_no_network_and_keeps_no_allow_list() {
    let world = World::new();
    let sshd = Sshd::start();
    let yaml = format!(
        "run: |\n  echo inside; grep -c : /proc/net/dev\nplugs:\n  - ssh: {}\n  - sandbox\n",
        ssh(&sshd, "")
    );
    let ended = run(&world, &yaml).expect(0);
    assert_eq!(ended.stdout, "inside\n1\n");
    let open = yaml.replace("- sandbox", "- sandbox: {network: {allow: [example.com]}}");
    let ended = run(&world, &open).expect(3);
    assert!(ended.stderr.contains("allowed hosts"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn section_6_host_check_on_ssh_and_docker() {
    let world = World::new();
    let sshd = Sshd::start();
    let engine = ContainerEngine::docker();
    for plug in [
        format!("ssh: {}", ssh(&sshd, "")),
        format!("docker: {}", docker(&engine)),
    ] {
        let file = session(&world, &format!("plugs:\n  - {plug}\n"));
        let checked = world.run(&["host", "check", file.to_str().unwrap(), "--json"]);
        let checked = checked.expect(0).json();
        assert_eq!(checked["ok"], true, "{checked}");
    }
}

/// Looks for every word in what a process there can see: its own and other processes' environments, arguments and
/// open files, its input, the files of the host, and the memory of all processes that it may read. The words are put
/// together there, so that looking for them does not find the search.
const SEARCH: &str = r#"
for w in $WORDS; do
  q="[c]anary-$w-$NONCE"
  for p in /proc/[0-9]*; do
    for f in environ cmdline comm; do
      tr '\0' '\n' < $p/$f 2>/dev/null | grep -q -e "$q" && echo "FOUND $w in $f"
    done
    ls -l $p/fd 2>/dev/null | grep -q -e "$q" && echo "FOUND $w in fd"
    while read range rights offset device inode path; do
      case $rights in r*) ;; *) continue ;; esac
      case $path in "[v"*) continue ;; esac
      a=$(printf '%d' 0x${range%-*}); b=$(printf '%d' 0x${range#*-})
      dd if=$p/mem bs=4096 skip=$((a/4096)) count=$(((b-a)/4096)) 2>/dev/null | grep -qa -e "$q" && echo "FOUND $w in mem"
    done 2>/dev/null < $p/maps
  done
  find /home /tmp /run /etc /root /var/tmp /dev/shm "$HOME" . -xdev -maxdepth 5 -type f -mmin -60 -size -1024k \
    -exec grep -l -e "$q" {} + 2>/dev/null | sed "s|^|FOUND $w in file |"
done
cat | grep -e '[c]anary'
echo searched
"#;

/// The runner's own secrets, where people have them: variables and files.
fn with_canaries(world: &World, yaml: &str) -> Ended {
    let canary = |word: &str| format!("canary-{word}-{}", nonce(world));
    let file = session(world, yaml);
    let data = world.data_dir();
    std::fs::create_dir_all(&data).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(data.join("key"), canary("file")).unwrap();
    std::fs::set_permissions(data.join("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = world.command(["session", "run", file.to_str().unwrap()]);
    for (name, word) in [
        ("BULKHEAD_TOKEN", "token"),
        ("BULKHEAD_RUNNER_TOKEN", "runner"),
        ("BULKHEAD_MASTER_KEY", "master"),
        ("ANTHROPIC_API_KEY", "model"),
        ("GITHUB_TOKEN", "git"),
    ] {
        command.env(name, canary(word));
    }
    Ended::from(command.output().unwrap())
}

/// This test's own, so that it finds no other test's canaries.
fn nonce(world: &World) -> String {
    let name = world.path().file_name().unwrap().to_string_lossy();
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

const WORDS: &str = "token runner master model git file given";

/// What is given is found, so the search can find; nothing else is.
fn search(world: &World, hosts: &str) {
    let nonce = nonce(world);
    let yaml = format!(
        "run: |\n{}plugs:\n{hosts}  - env: {{WORDS: '{WORDS}', NONCE: {nonce}, GIVEN: canary-given-{nonce}}}\n",
        SEARCH
            .lines()
            .fold(String::new(), |text, line| text + "  " + line + "\n")
    );
    let ended = with_canaries(world, &yaml).expect(0);
    assert!(ended.stdout.contains("searched"), "{}", ended.stdout);
    for place in ["environ", "mem"] {
        let found = format!("FOUND given in {place}");
        assert!(ended.stdout.contains(&found), "{hosts}: {}", ended.stdout);
    }
    let others: Vec<_> = ended
        .stdout
        .lines()
        .filter(|line| !line.starts_with("FOUND given in ") && *line != "searched")
        .collect();
    assert!(others.is_empty(), "{hosts}: {others:?}");
}

#[test]
fn h7_no_canary_is_found_in_the_sandbox() {
    search(&World::new(), "  - sandbox\n");
}

#[test]
fn h7_no_canary_is_found_over_ssh() {
    let sshd = Sshd::start();
    search(&World::new(), &format!("  - ssh: {}\n", ssh(&sshd, "")));
}

#[test]
fn h7_no_canary_is_found_in_a_container_nor_in_one_over_ssh() {
    let engine = ContainerEngine::docker();
    let sshd = over_the_engine();
    search(&World::new(), &format!("  - docker: {}\n", docker(&engine)));
    search(
        &World::new(),
        &format!(
            "  - ssh: {}\n  - docker: {}\n",
            ssh(&sshd, ""),
            docker(&engine)
        ),
    );
}

#[test]
fn h7_no_canary_is_found_with_podman_nor_in_a_sandbox_elsewhere() {
    let (podman, engine, sshd) = (
        ContainerEngine::podman(),
        ContainerEngine::docker(),
        Sshd::start(),
    );
    search(&World::new(), &format!("  - docker: {}\n", docker(&podman)));
    let open = docker(&engine).replacen('{', "{sandboxInside: true, ", 1);
    search(&World::new(), &format!("  - docker: {open}\n  - sandbox\n"));
    let over_ssh = format!("  - ssh: {}\n  - sandbox\n", ssh(&sshd, ""));
    search(&World::new(), &over_ssh);
}

/// H1: what a session forwards carries bytes, from a host without any network to this machine and back.
#[test]
fn h1_ports_of_a_session_carry_bytes_in_both_directions() {
    let engine = ContainerEngine::docker();
    for host in ["sandbox".to_owned(), format!("docker: {}", docker(&engine))] {
        let world = World::new();
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = world.path().join("to-host");
        let yaml = format!(
            "run: |
  bash -c 'exec 3<>/dev/tcp/${{BACK%:*}}/${{BACK#*:}}; echo from the host >&3; cat <&3'
  perl -MIO::Socket::INET -e '
    $| = 1;
    my $here = IO::Socket::INET->new(LocalAddr => \"127.0.0.1\", LocalPort => 7777, Listen => 1) or die $!;
    print \"listening\\n\";
    my $peer = $here->accept;
    print {{$peer}} scalar reverse <$peer>;'
plugs:
  - {host}
  - ports:
      toRunner: [{{listen: '127.0.0.1:0', connect: '{}', env: BACK}}]
      toHost: [{{listen: {}, connect: '127.0.0.1:7777'}}]
",
            here.local_addr().unwrap(),
            socket.display()
        );
        let child = begin(&world, &yaml, &[]);
        let (mut from_host, _) = here.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&from_host).read_line(&mut line).unwrap();
        assert_eq!(line, "from the host\n");
        from_host.write_all(b"from the runner\n").unwrap();
        drop(from_host);
        let mut answer = String::new();
        wait_until("the host's own server", || {
            let Ok(mut to_host) = UnixStream::connect(&socket) else {
                return false;
            };
            answer.clear();
            // Nobody may listen there yet: then the stream ends.
            drop(to_host.write_all(b"abc\n"));
            drop(to_host.shutdown(Shutdown::Write));
            drop(to_host.read_to_string(&mut answer));
            !answer.is_empty()
        });
        assert_eq!(answer, "\ncba", "{host}");
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout, "from the runner\nlistening\n", "{host}: {output:?}");
        assert!(!socket.exists());
    }
}

/// What a session has written down that is to be undone.
fn journal(world: &World) -> String {
    let (dir, _) = only(world);
    let files = std::fs::read_dir(dir).unwrap().flatten();
    files
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .collect()
}

/// H4: where the session's process is killed, its parent removes the container.
#[test]
fn h4_h12_a_container_of_a_killed_session_is_removed_by_its_parent() {
    for engine in [ContainerEngine::docker(), ContainerEngine::podman()] {
        let world = World::new();
        let yaml = format!(
            "run: echo begun; sleep 600\nplugs:\n  - docker: {}\n",
            docker(&engine)
        );
        let mut child = begin(&world, &yaml, &[]);
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        let journal = journal(&world);
        let mut there = engine.containers();
        there.retain(|name| journal.contains(name));
        let [ours] = &there[..] else {
            panic!("{there:?} of {journal}");
        };
        kill_process(worker(&child).unwrap(), Signal::KILL).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(!engine.containers().contains(ours));
    }
}

/// `local` is the exception: the agent has the runner's rights. What the runner still does is to keep its own secrets
/// out of environments and arguments, its own and those of its session.
#[test]
fn h7_on_this_machine_no_canary_is_in_an_environment_or_argument() {
    let world = World::new();
    let script = "\
run: |
  env | grep -c -e '=[c]anary-'
  p=$$
  while [ $p -gt 1 ]; do
    for f in environ cmdline; do tr '\\0' '\\n' < /proc/$p/$f | grep -e '[c]anary-[a-z]*-'; done
    echo $(cat /proc/$p/comm) >&2
    p=$(sed -n 's/^PPid:.//p' /proc/$p/status)
  done
  echo searched
plugs: [local]
";
    let ended = with_canaries(&world, script).expect(0);
    assert_eq!(ended.stdout, "0\nsearched\n");
    assert!(ended.stderr.contains("bulkhead"), "{}", ended.stderr);
}
