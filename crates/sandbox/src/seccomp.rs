//! The system-call filter: an allow-list. What is not in it fails with "operation not permitted", except where that would
//! keep a library from taking another way: those calls, and every number that no kernel had when the list was written, fail
//! with "no such system call".

mod compile;
mod list;
mod rules;

use std::collections::BTreeMap;

use compile::{ENOSYS, EPERM, Range, Verdict};
use list::{ALLOWED, CHECKED, FIRST_UNKNOWN, LAST_UNKNOWN};
pub use rules::{Argument, Checked, Group, Test, is, is_not, masked};

/// The processor that the list's numbers belong to, as the kernel names it to a filter.
#[cfg(target_arch = "x86_64")]
const PROCESSOR: u32 = 0xc000_003e;

/// The program to install, as bytes of `struct sock_filter`. It is one, because the kernel takes 0.1 ms for each to translate it
/// and to make its memory executable.
pub(crate) fn programs() -> Vec<Vec<u8>> {
    vec![filter()]
}

/// The filter as one program of `struct sock_filter`, for other walls than this crate's own.
pub fn filter() -> Vec<u8> {
    bytes(&compile::program(&ranges(&listed()), PROCESSOR))
}

/// Another list than the sandbox's, compiled the same way: what is in neither part of it is refused.
pub fn compile(allowed: &[Group], checked: &[Checked]) -> Vec<u8> {
    bytes(&compile::program(
        &ranges(&verdicts(allowed, checked)),
        PROCESSOR,
    ))
}

fn bytes(program: &[libc::sock_filter]) -> Vec<u8> {
    let bytes = program.iter().flat_map(|step| {
        let [c0, c1] = step.code.to_le_bytes();
        let [k0, k1, k2, k3] = step.k.to_le_bytes();
        [c0, c1, step.jt, step.jf, k0, k1, k2, k3]
    });
    bytes.collect()
}

fn listed() -> BTreeMap<u32, Verdict> {
    let mut all = verdicts(ALLOWED, CHECKED);
    all.extend(
        [libc::SYS_setrlimit, libc::SYS_prlimit64]
            .map(|call| (number(call), Verdict::KeepCoreLimit)),
    );
    all
}

fn verdicts(allowed: &[Group], checked: &[Checked]) -> BTreeMap<u32, Verdict> {
    let whole = allowed
        .iter()
        .flat_map(|group| group.calls)
        .map(|call| (number(*call), Verdict::Allow));
    let checked = checked.iter().flat_map(|checked| {
        checked
            .calls
            .iter()
            .map(|call| (number(*call), Verdict::Check(checked.any_of)))
    });
    whole.chain(checked).collect()
}

fn number(call: i64) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// Neighbours with one verdict become one range. Beyond the last number the unlisted verdict holds: there lies x32, whose
/// calls are the same kernel functions under other numbers.
fn ranges(listed: &BTreeMap<u32, Verdict>) -> Vec<Range> {
    let verdict = |call: u32| match listed.get(&call) {
        Some(verdict) => *verdict,
        None if (FIRST_UNKNOWN..=LAST_UNKNOWN).contains(&call) => Verdict::Errno(ENOSYS),
        None => Verdict::Errno(EPERM),
    };
    let mut ranges: Vec<Range> = Vec::new();
    for first in 0..=LAST_UNKNOWN + 1 {
        let verdict = verdict(first);
        if ranges.last().is_none_or(|last| last.verdict != verdict) {
            ranges.push(Range { first, verdict });
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::collections::BTreeSet;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch,
    };

    use super::*;

    /// What a filter is shown.
    struct Call {
        number: u32,
        processor: u32,
        arguments: [u64; 6],
    }

    /// Runs a program as the kernel does; steps are (code, jt, jf, k).
    fn run(program: &[(u16, u8, u8, u32)], call: &Call) -> u32 {
        let word = |offset: u32| match offset {
            0 => call.number,
            4 => call.processor,
            16.. => {
                let value = call.arguments[(offset as usize - 16) / 8];
                u32::try_from(if offset.is_multiple_of(8) {
                    value & 0xffff_ffff
                } else {
                    value >> 32
                })
                .unwrap()
            }
            _ => panic!("offset {offset}"),
        };
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let (code, jt, jf, k) = program[at];
            at += 1;
            let mut jump = |taken: bool| at += usize::from(if taken { jt } else { jf });
            match code {
                0x20 => a = word(k),
                0x54 => a &= k,
                0x05 => at += k as usize,
                0x15 => jump(a == k),
                0x25 => jump(a > k),
                0x35 => jump(a >= k),
                0x06 => return k,
                other => panic!("code {other:#x}"),
            }
        }
    }

    fn ours() -> Vec<(u16, u8, u8, u32)> {
        compile::program(&ranges(&listed()), PROCESSOR)
            .iter()
            .map(|step| (step.code, step.jt, step.jf, step.k))
            .collect()
    }

    /// The same list, through a compiler that others have looked at: a chain that allows or refuses.
    fn chain() -> Vec<(u16, u8, u8, u32)> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for (call, verdict) in listed() {
            let any_of: &[&[Argument]] = match verdict {
                Verdict::Check(any_of) => any_of,
                _ => &[],
            };
            let rule = |all: &&[Argument]| {
                let conditions = all.iter().map(|argument| {
                    let (operator, value) = match argument.test {
                        Test::Is(value) => (SeccompCmpOp::Eq, value),
                        Test::IsNot(value) => (SeccompCmpOp::Ne, value),
                        Test::Masked { mask, value } => (SeccompCmpOp::MaskedEq(mask), value),
                    };
                    SeccompCondition::new(argument.index, SeccompCmpArgLen::Dword, operator, value)
                        .unwrap()
                });
                SeccompRule::new(conditions.collect()).unwrap()
            };
            rules.insert(i64::from(call), any_of.iter().map(rule).collect());
        }
        let (refuse, allow) = (SeccompAction::Errno(1), SeccompAction::Allow);
        let filter = SeccompFilter::new(rules, refuse, allow, TargetArch::x86_64).unwrap();
        let program = BpfProgram::try_from(filter).unwrap();
        program
            .iter()
            .map(|step| (step.code, step.jt, step.jf, step.k))
            .collect()
    }

    const ALLOW: u32 = 0x7fff_0000;

    /// R4: for every number, also x32's, and for arguments on both sides of each check, the tree allows exactly what a
    /// chain made by `seccompiler` from the same list allows. The two calls that set limits have a test of their own.
    #[test]
    fn r4_the_tree_allows_what_the_chain_allows() {
        let (tree, chain) = (ours(), chain());
        let mut values: BTreeSet<u64> = [
            0,
            1,
            2,
            3,
            5,
            6,
            10,
            16,
            17,
            0o755,
            0o4755,
            0o2755,
            0o101,
            u64::MAX,
            1 << 32,
        ]
        .into();
        for argument in CHECKED
            .iter()
            .flat_map(|checked| checked.any_of.iter().flat_map(|all| all.iter()))
        {
            let (Test::Is(value) | Test::IsNot(value) | Test::Masked { mask: value, .. }) =
                argument.test;
            values.extend([
                value,
                value | 1 << 40,
                value ^ 1,
                value & value.wrapping_neg(),
            ]);
        }
        let checked: BTreeSet<i64> = CHECKED
            .iter()
            .flat_map(|checked| checked.calls)
            .copied()
            .collect();
        let apart = [libc::SYS_setrlimit, libc::SYS_prlimit64];
        for number in (0..700).chain(0x4000_0000..0x4000_0300) {
            if apart.contains(&i64::from(number)) {
                continue;
            }
            let rich = checked.contains(&i64::from(number));
            let seconds: Vec<u64> = if rich {
                values.iter().copied().collect()
            } else {
                vec![0]
            };
            for (first, second) in seconds
                .iter()
                .flat_map(|first| seconds.iter().map(move |second| (*first, *second)))
            {
                for third in if rich {
                    vec![0, 1, 0o644, 0o4644, 6, 17, 31, 262, 0x4_0022]
                } else {
                    vec![0]
                } {
                    let call = Call {
                        number,
                        processor: PROCESSOR,
                        arguments: [first, second, third, third, 0, 0],
                    };
                    let allowed = run(&tree, &call) == ALLOW;
                    assert_eq!(
                        allowed,
                        run(&chain, &call) == ALLOW,
                        "call {number} {first:#x} {second:#x} {third:#x}"
                    );
                }
            }
        }
    }

    /// H7: no change of the core limit reaches the kernel, by no spelling of its arguments; reading it does, and so does
    /// every other limit.
    #[test]
    fn h7_the_core_limit_cannot_be_changed() {
        let program = ours();
        let answer = |number: i64, arguments| {
            let number = u32::try_from(number).unwrap();
            let processor = PROCESSOR;
            run(
                &program,
                &Call {
                    number,
                    processor,
                    arguments,
                },
            )
        };
        let core = u64::from(libc::RLIMIT_CORE);
        let pretended = 0x0005_0000;
        for high in [0, 1 << 32] {
            let core = core | high;
            assert_eq!(
                answer(libc::SYS_setrlimit, [core, 7, 0, 0, 0, 0]),
                pretended
            );
            for pointer in [7, 1 << 32, 1 << 40 | 7] {
                let arguments = [0, core, pointer, 0, 0, 0];
                assert_eq!(answer(libc::SYS_prlimit64, arguments), pretended);
            }
            assert_eq!(answer(libc::SYS_prlimit64, [0, core, 0, 7, 0, 0]), ALLOW);
            assert_eq!(answer(libc::SYS_getrlimit, [core, 7, 0, 0, 0, 0]), ALLOW);
        }
        assert_eq!(answer(libc::SYS_setrlimit, [7, 7, 0, 0, 0, 0]), ALLOW);
        assert_eq!(answer(libc::SYS_prlimit64, [4, 7, 4, 0, 0, 0]), ALLOW);
    }

    /// R4: calls of another processor's numbering end the process.
    #[test]
    fn r4_another_processor_is_killed() {
        let i386 = Call {
            number: 1,
            processor: 0x4000_0003,
            arguments: [0; 6],
        };
        assert_eq!(run(&ours(), &i386), 0x8000_0000);
    }

    /// Libraries take the older call when the newer one does not exist, and only then.
    #[test]
    fn calls_that_cannot_be_checked_do_not_exist() {
        let answer = |number: i64| {
            run(
                &ours(),
                &Call {
                    number: u32::try_from(number).unwrap(),
                    processor: PROCESSOR,
                    arguments: [0; 6],
                },
            )
        };
        for call in [
            libc::SYS_clone3,
            libc::SYS_openat2,
            libc::SYS_io_uring_setup,
            470,
            500,
        ] {
            assert_eq!(answer(call), 0x0005_0000 | u32::from(ENOSYS), "{call}");
        }
        for call in [
            libc::SYS_mount,
            libc::SYS_ptrace,
            libc::SYS_bpf,
            libc::SYS_unshare,
        ] {
            assert_eq!(answer(call), 0x0005_0000 | u32::from(EPERM), "{call}");
        }
    }

    #[test]
    fn the_program_is_short_and_its_constants_fit() {
        assert!(ours().len() < 1024, "{}", ours().len());
        for argument in CHECKED
            .iter()
            .flat_map(|checked| checked.any_of.iter().flat_map(|all| all.iter()))
        {
            let (Test::Is(value) | Test::IsNot(value) | Test::Masked { mask: value, .. }) =
                argument.test;
            assert!(u32::try_from(value).is_ok());
        }
    }

    /// R4: nothing that changes namespaces, mounts, other processes, the kernel or the clock is in the list.
    #[test]
    fn r4_nothing_dangerous_is_allowed() {
        let allowed: BTreeSet<i64> = listed().into_keys().map(i64::from).collect();
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
