//! The system-call filter: an allow-list. What is not in it fails with "operation not permitted".
//!
//! Two programs are installed, one after the other. Of two errors the kernel returns the later program's, so the second
//! turns some refusals of the first into "no such system call": those where libraries then fall back to an older call
//! (`clone3`, `openat2`, io_uring), and every number that no kernel had when this list was written.

mod list;

use std::{collections::BTreeMap, io, num::TryFromIntError};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use list::{ALLOWED, Argument, CHECKED, FIRST_UNKNOWN, LAST_UNKNOWN};

/// Why the list could not be turned into programs: a defect of the list, seen by every test.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("compiling the system-call filter")]
    Compile(#[source] seccompiler::BackendError),
    #[error("the system-call filter is not made for this processor")]
    Processor(#[source] seccompiler::BackendError),
    #[error("a number in the system-call filter is out of range")]
    Number(#[source] TryFromIntError),
}

impl From<FilterError> for io::Error {
    fn from(error: FilterError) -> Self {
        Self::other(error)
    }
}

/// Both programs, as bytes of `struct sock_filter`, in the order in which they are to be installed.
pub(crate) fn programs() -> Result<Vec<Vec<u8>>, FilterError> {
    let refuse = errno(libc::EPERM)?;
    let missing = errno(libc::ENOSYS)?;
    let first = compile(allowed()?, refuse, SeccompAction::Allow)?;
    let second = compile(missing_calls(), SeccompAction::Allow, missing)?;
    Ok(vec![first, second])
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn allowed() -> Result<Rules, FilterError> {
    let whole = ALLOWED
        .iter()
        .flat_map(|group| group.calls)
        .map(|call| (*call, Vec::new()));
    let mut rules: Rules = whole.collect();
    for checked in CHECKED {
        let alternatives = checked
            .any_of
            .iter()
            .map(|all| rule(all))
            .collect::<Result<Vec<_>, _>>()?;
        rules.extend(
            checked
                .calls
                .iter()
                .map(|call| (*call, alternatives.clone())),
        );
    }
    Ok(rules)
}

/// The checks of one alternative, all of which must hold. Only the low 32 bits are compared where the kernel's parameter
/// has only those: else a value with high bits set would pass the filter and mean the forbidden thing to the kernel.
fn rule(all: &[Argument]) -> Result<SeccompRule, FilterError> {
    let condition = |argument: &Argument| {
        let (operator, value) = match argument.test {
            list::Test::Is(value) => (SeccompCmpOp::Eq, value),
            list::Test::IsNot(value) => (SeccompCmpOp::Ne, value),
            list::Test::Masked { mask, value } => (SeccompCmpOp::MaskedEq(mask), value),
        };
        SeccompCondition::new(argument.index, SeccompCmpArgLen::Dword, operator, value)
    };
    let conditions: Result<Vec<_>, _> = all.iter().map(condition).collect();
    conditions
        .and_then(SeccompRule::new)
        .map_err(FilterError::Compile)
}

fn missing_calls() -> Rules {
    let known = |call: &i64| {
        ALLOWED.iter().any(|group| group.calls.contains(call))
            || CHECKED.iter().any(|checked| checked.calls.contains(call))
    };
    let unknown = (FIRST_UNKNOWN..=LAST_UNKNOWN).filter(|call| !known(call));
    unknown.map(|call| (call, Vec::new())).collect()
}

fn compile(
    rules: Rules,
    mismatch: SeccompAction,
    matched: SeccompAction,
) -> Result<Vec<u8>, FilterError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(FilterError::Processor)?;
    let filter =
        SeccompFilter::new(rules, mismatch, matched, arch).map_err(FilterError::Compile)?;
    let program = BpfProgram::try_from(filter).map_err(FilterError::Compile)?;
    let bytes = program.iter().flat_map(|step| {
        let [c0, c1] = step.code.to_le_bytes();
        let [k0, k1, k2, k3] = step.k.to_le_bytes();
        [c0, c1, step.jt, step.jf, k0, k1, k2, k3]
    });
    Ok(bytes.collect())
}

fn errno(number: i32) -> Result<SeccompAction, FilterError> {
    u32::try_from(number)
        .map(SeccompAction::Errno)
        .map_err(FilterError::Number)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_list_compiles_to_two_programs_that_the_kernel_takes() {
        let programs = programs().unwrap();
        assert_eq!(programs.len(), 2);
        for program in programs {
            assert!(
                program.len() % 8 == 0 && program.len() / 8 < 4096,
                "{} bytes",
                program.len()
            );
        }
    }

    /// R4: nothing that changes namespaces, mounts, other processes, the kernel or the clock is in the list.
    #[test]
    fn r4_nothing_dangerous_is_allowed() {
        let allowed: BTreeSet<i64> = allowed().unwrap().into_keys().collect();
        let forbidden = [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_fsopen,
            libc::SYS_fsmount,
            libc::SYS_fsconfig,
            libc::SYS_fspick,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_mount_setattr,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_kcmp,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_clone3,
            libc::SYS_openat2,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_kexec_load,
            libc::SYS_kexec_file_load,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_clock_settime,
            libc::SYS_settimeofday,
            libc::SYS_clock_adjtime,
            libc::SYS_adjtimex,
            libc::SYS_open_by_handle_at,
            libc::SYS_name_to_handle_at,
            libc::SYS_fanotify_init,
            libc::SYS_quotactl,
            libc::SYS_acct,
            libc::SYS_syslog,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_iopl,
            libc::SYS_ioperm,
            libc::SYS_modify_ldt,
            libc::SYS_vhangup,
            libc::SYS_nfsservctl,
        ];
        for call in forbidden {
            assert!(!allowed.contains(&call), "system call {call} is allowed");
        }
    }

    /// R4: each call stands in one place, so that a checked one is not allowed unchecked elsewhere.
    #[test]
    fn r4_no_call_is_listed_twice() {
        let mut seen = BTreeSet::new();
        let checked = CHECKED.iter().flat_map(|checked| checked.calls);
        for call in ALLOWED.iter().flat_map(|group| group.calls).chain(checked) {
            assert!(seen.insert(call), "system call {call} is listed twice");
        }
    }
}
