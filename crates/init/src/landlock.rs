//! Landlock: a second wall behind the mount tree. What the plan does not list cannot be touched, whatever is mounted.
//!
//! The rights of each path come from the plan, cut to what this kernel knows; a kernel without Landlock at all is a failure.
//! Network ports are for the caller to say: a sandbox's namespace has only loopback, where agents run servers of their own.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use crate::wire::Access;

use crate::sys::{Context, Outcome, check, open, owned};

const CREATE_RULESET: i64 = 444;
const ADD_RULE: i64 = 445;
const RESTRICT_SELF: i64 = 446;
const VERSION: u32 = 1;
const PATH_BENEATH: u32 = 1;
/// File rights by the ABI that brought them: bits 0–12, then REFER, TRUNCATE, IOCTL_DEV.
const RIGHTS_1: u64 = 0x1fff;
const RIGHTS_2: u64 = 1 << 13;
const RIGHTS_3: u64 = 1 << 14;
const RIGHTS_5: u64 = 1 << 15;
/// The rights that make sense on something that is not a directory.
const FILE_RIGHTS: u64 = 1 | 1 << 1 | 1 << 2 | RIGHTS_3 | RIGHTS_5;
/// Abstract Unix sockets and signals end at the sandbox's border (ABI 6).
const SCOPES: u64 = 0b11;
/// Binding and connecting TCP ports (ABI 4).
const PORTS: u64 = 0b11;

/// Whether TCP ports may be bound and connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    Open,
    Closed,
}

#[repr(C)]
struct RulesetAttributes {
    fs: u64,
    net: u64,
    scoped: u64,
}

/// The kernel's struct is packed: 12 bytes.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

pub fn restrict(access: &[Access], ports: Ports) -> Outcome<()> {
    let abi = abi()
        .during(|| "asking for Landlock (is `landlock` in the kernel's `lsm=` list?)".to_owned())?;
    let handled = handled(abi);
    let scoped = if abi >= 6 { SCOPES } else { 0 };
    let net = match ports {
        Ports::Closed if abi >= 4 => PORTS,
        _ => 0,
    };
    let ruleset = create(
        abi,
        &RulesetAttributes {
            fs: handled,
            net,
            scoped,
        },
    )
    .during(|| "making the Landlock rules".to_owned())?;
    for rule in access {
        allow(ruleset.as_fd(), rule, handled)
            .during(|| format!("allowing {} by Landlock", rule.path))?;
    }
    // SAFETY: takes a descriptor and flags only.
    check(unsafe { libc::syscall(RESTRICT_SELF, ruleset.as_raw_fd(), 0_u32) })
        .map(drop)
        .during(|| "applying the Landlock rules".to_owned())
}

pub fn abi() -> io::Result<i64> {
    // SAFETY: with the version flag no attributes are read.
    check(unsafe { libc::syscall(CREATE_RULESET, std::ptr::null::<u8>(), 0_usize, VERSION) })
}

fn handled(abi: i64) -> u64 {
    let newer = [(2, RIGHTS_2), (3, RIGHTS_3), (5, RIGHTS_5)];
    newer
        .iter()
        .filter(|(since, _)| abi >= *since)
        .fold(RIGHTS_1, |all, (_, rights)| all | rights)
}

fn create(abi: i64, attributes: &RulesetAttributes) -> io::Result<std::os::fd::OwnedFd> {
    // An older kernel accepts only as much of the struct as it knows.
    let size: usize = match abi {
        6.. => 24,
        4..=5 => 16,
        _ => 8,
    };
    // SAFETY: the attributes are at least `size` bytes long and outlive the call.
    owned(unsafe { libc::syscall(CREATE_RULESET, std::ptr::from_ref(attributes), size, 0_u32) })
}

fn allow(ruleset: BorrowedFd<'_>, rule: &Access, handled: u64) -> io::Result<()> {
    let target = open(&rule.path, libc::O_PATH)?;
    let is_dir = std::fs::metadata(&rule.path)?.is_dir();
    let possible = if is_dir { u64::MAX } else { FILE_RIGHTS };
    let beneath = PathBeneath {
        allowed: rule.rights & handled & possible,
        parent: target.as_raw_fd(),
    };
    // SAFETY: the struct is the kernel's and outlives the call.
    check(unsafe {
        libc::syscall(
            ADD_RULE,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            &raw const beneath,
            0_u32,
        )
    })
    .map(drop)
}
