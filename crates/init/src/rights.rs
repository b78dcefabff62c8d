//! Giving rights away: users, groups, Linux capabilities, resource limits, keyring, seccomp.

use std::io;

use crate::wire::Rlimit;

use crate::sys::{Context, Outcome, check, prctl};

const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
/// The kernel has fewer; dropping one that it does not know is the end of the list.
const CAP_LAST_POSSIBLE: u64 = 63;
/// NOROOT and NO_CAP_AMBIENT_RAISE, and the locks of all four bits: user id 0 inside gives nothing at an exec, nothing can
/// be raised again, and a change of user always takes the capabilities away.
const SECUREBITS: u64 = 0b1110_1011;
/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
const KEYCTL_JOIN_SESSION_KEYRING: u32 = 1;

/// The first process takes the id that is mapped to 0, with no groups. An unmapped user could not even make a file.
pub fn become_root_inside() -> Outcome<()> {
    become_user(0).during(|| "becoming root inside the sandbox".to_owned())
}

/// Group first: afterwards there is no right to change it.
pub fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: these calls take numbers only; no group list is read where its length is 0.
    unsafe {
        check(libc::syscall(
            libc::SYS_setgroups,
            0_usize,
            std::ptr::null::<libc::gid_t>(),
        ))?;
        check(libc::syscall(libc::SYS_setresgid, id, id, id))?;
        check(libc::syscall(libc::SYS_setresuid, id, id, id)).map(drop)
    }
}

/// A session keyring of its own, so that the host's is not possessed.
pub fn new_keyring() -> Outcome<()> {
    // SAFETY: a null name asks for an anonymous keyring.
    let joined = check(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<u8>(),
        )
    });
    match joined {
        // A kernel without keyrings has none to share.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other
            .map(drop)
            .during(|| "making a session keyring".to_owned()),
    }
}

pub fn limit(rlimits: &[Rlimit]) -> Outcome<()> {
    for wanted in rlimits {
        let limit = libc::rlimit {
            rlim_cur: wanted.soft,
            rlim_max: wanted.hard,
        };
        // SAFETY: the struct is valid for the call.
        check(unsafe { libc::setrlimit(wanted.resource, &raw const limit) }).during(|| {
            format!(
                "setting resource limit {} to {}",
                wanted.resource, wanted.hard
            )
        })?;
    }
    Ok(())
}

/// PID 1 ends with its launcher, and nobody looks into it. The kernel forgets both at each change of user.
pub fn guard_init() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())?;
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Empties the bounding set for good and keeps what an init needs to start and to signal the agent's processes.
pub fn keep_only_init_capabilities() -> Outcome<()> {
    let kept = 1 << CAP_KILL | 1 << CAP_SETGID | 1 << CAP_SETUID;
    empty_bounding_set()?;
    set_capabilities(kept).during(giving_up)?;
    close_to_others()
}

/// Nothing is kept. Where this process may still choose, it becomes the given user before.
pub fn keep_no_capabilities(user: Option<u32>) -> Outcome<()> {
    empty_bounding_set()?;
    if let Some(user) = user {
        become_user(user).during(|| format!("becoming user {user}"))?;
    }
    set_capabilities(0).during(giving_up)?;
    close_to_others()
}

fn giving_up() -> String {
    "giving up Linux capabilities".to_owned()
}

/// What is in no bounding set can come back by no program.
fn empty_bounding_set() -> Outcome<()> {
    for capability in 0..=CAP_LAST_POSSIBLE {
        if prctl(libc::PR_CAPBSET_DROP, capability).is_err() {
            break;
        }
    }
    prctl(libc::PR_SET_SECUREBITS, SECUREBITS).during(|| "locking the secure bits".to_owned())
}

fn close_to_others() -> Outcome<()> {
    prctl(libc::PR_SET_DUMPABLE, 0).during(|| "closing the process to others".to_owned())?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1).during(|| "setting no_new_privs".to_owned())
}

/// Permitted and effective become `kept`; inheritable (and with it ambient) becomes empty.
pub fn set_capabilities(kept: u32) -> io::Result<()> {
    let header: [u32; 2] = [CAPABILITY_VERSION, 0];
    let data: [u32; 6] = [kept, kept, 0, 0, 0, 0];
    // SAFETY: version 3 of the call reads a header of two and data of six 32-bit words.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }).map(drop)
}

/// Installs the compiled programs. They hold for PID 1 too, and for all that it starts.
pub fn filter(programs: &[Vec<u8>]) -> Outcome<()> {
    programs.iter().try_for_each(|program| {
        install(program).during(|| "installing the system-call filter".to_owned())
    })
}

fn install(program: &[u8]) -> io::Result<()> {
    install_steps(&filter_steps(program)?)
}

/// A compiled program's bytes as the kernel's steps.
pub fn filter_steps(program: &[u8]) -> io::Result<Vec<libc::sock_filter>> {
    let (steps, []) = program.as_chunks::<8>() else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    Ok(steps.iter().map(instruction).collect())
}

/// Installs one program of steps for this thread.
pub fn install_steps(steps: &[libc::sock_filter]) -> io::Result<()> {
    const SECCOMP_SET_MODE_FILTER: u32 = 1;
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?,
        filter: steps.as_ptr().cast_mut(),
    };
    // SAFETY: the program points to its steps, which outlive the call; the kernel only reads them.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SECCOMP_SET_MODE_FILTER,
            0_u32,
            &raw const program,
        )
    })
    .map(drop)
}

fn instruction(bytes: &[u8; 8]) -> libc::sock_filter {
    let [c0, c1, jt, jf, k0, k1, k2, k3] = *bytes;
    libc::sock_filter {
        code: u16::from_le_bytes([c0, c1]),
        jt,
        jf,
        k: u32::from_le_bytes([k0, k1, k2, k3]),
    }
}
