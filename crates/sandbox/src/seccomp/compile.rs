//! From the list to one BPF program.
//!
//! ```text
//! wrong processor? kill ─▶ the call's number: binary search over ranges ─▶ allow │ EPERM │ ENOSYS │ look at arguments
//! ```
//!
//! A search tree and not a chain, because the kernel runs a new program once for every call number there is, to find those
//! that it can allow without running it: with a chain of some 300 comparisons, made twice, installing took 1.1 ms of each
//! sandbox's start. A test compares this program's answers with those of `seccompiler`'s chain.

use libc::sock_filter;

use super::rules::{Argument, Test};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    Errno(u16),
    /// Allowed where one of these alternatives holds, else `EPERM`.
    Check(&'static [&'static [Argument]]),
    /// `setrlimit` and `prlimit64`: see [`keep_core_limit`].
    KeepCoreLimit,
}

/// All calls from `first` up to the next range's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) verdict: Verdict,
}

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const PROCESSOR: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_ERRNO: u32 = 0x0005_0000;
const RETURN_KILL_PROCESS: u32 = 0x8000_0000;

/// `ranges` begin at 0 and ascend.
pub(super) fn program(ranges: &[Range], processor: u32) -> Vec<sock_filter> {
    let mut program = vec![
        step(LOAD, PROCESSOR),
        branch(JUMP_IF_EQUAL, processor, 1, 0),
        step(RETURN, RETURN_KILL_PROCESS),
        step(LOAD, NUMBER),
    ];
    program.extend(search(ranges));
    program
}

/// What two calls come to, whose number is loaded already: the limit on core dumps stays what PID 1 has set (see `layout`). A
/// change of it seems to succeed, because programs that guard secrets set it to 0 and give up where they cannot; what they
/// want holds anyway.
fn keep_core_limit() -> Vec<sock_filter> {
    const CORE: u32 = libc::RLIMIT_CORE;
    let low = |index: u32| step(LOAD, ARGUMENTS + 8 * index);
    let high = |index: u32| step(LOAD, ARGUMENTS + 8 * index + 4);
    vec![
        branch(JUMP_IF_EQUAL, number(libc::SYS_prlimit64), 2, 0),
        low(0),
        branch(JUMP_IF_EQUAL, CORE, 6, 7),
        low(1),
        branch(JUMP_IF_EQUAL, CORE, 0, 5),
        // Without a new limit it only asks for the old one. Both halves of the pointer count.
        low(2),
        branch(JUMP_IF_EQUAL, 0, 0, 2),
        high(2),
        branch(JUMP_IF_EQUAL, 0, 1, 0),
        errno(0),
        step(RETURN, RETURN_ALLOW),
    ]
}

fn number(call: i64) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

const fn step(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

const fn branch(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Conditional jumps reach 255 steps only, so each one that may go further is followed by a plain one, which reaches all.
fn search(ranges: &[Range]) -> Vec<sock_filter> {
    let (left, right) = ranges.split_at(ranges.len() / 2);
    let Some(middle) = right.first().filter(|_| !left.is_empty()) else {
        return ranges
            .first()
            .map_or_else(Vec::new, |range| leaf(range.verdict));
    };
    let below = search(left);
    let mut all = vec![
        branch(JUMP_IF_AT_LEAST, middle.first, 0, 1),
        step(JUMP, length(&below)),
    ];
    all.extend(below);
    all.extend(search(right));
    all
}

fn leaf(verdict: Verdict) -> Vec<sock_filter> {
    match verdict {
        Verdict::Allow => vec![step(RETURN, RETURN_ALLOW)],
        Verdict::Errno(number) => vec![errno(number)],
        Verdict::KeepCoreLimit => keep_core_limit(),
        Verdict::Check(any_of) => {
            let mut all: Vec<_> = any_of.iter().flat_map(|tests| alternative(tests)).collect();
            all.push(errno(EPERM));
            all
        }
    }
}

pub(super) const EPERM: u16 = 1;
pub(super) const ENOSYS: u16 = 38;

fn errno(number: u16) -> sock_filter {
    step(RETURN, RETURN_ERRNO | u32::from(number))
}

/// Allows when every test passes; falls out of its end when one fails. Only an argument's low 32 bits are looked at, because
/// the kernel's parameters here have only those: else a value with high bits set would pass and mean the forbidden thing.
fn alternative(tests: &[Argument]) -> Vec<sock_filter> {
    let mut rest = vec![step(RETURN, RETURN_ALLOW)];
    for test in tests.iter().rev() {
        let away = u8::try_from(rest.len()).unwrap_or(u8::MAX);
        // Little-endian: the low half comes first.
        let load = step(LOAD, ARGUMENTS + 8 * u32::from(test.index));
        let mut all = match test.test {
            Test::Is(value) => vec![load, branch(JUMP_IF_EQUAL, low(value), 0, away)],
            Test::IsNot(value) => vec![load, branch(JUMP_IF_EQUAL, low(value), away, 0)],
            Test::Masked { mask, value } => {
                vec![
                    load,
                    step(AND, low(mask)),
                    branch(JUMP_IF_EQUAL, low(value), 0, away),
                ]
            }
        };
        all.append(&mut rest);
        rest = all;
    }
    rest
}

fn length(steps: &[sock_filter]) -> u32 {
    u32::try_from(steps.len()).unwrap_or(u32::MAX)
}

/// The constants in the list are 32-bit numbers; a test says so.
fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(0)
}
