//! Feeds the targets on stable Rust: seeds, changed at random, for a given time. Nothing guides it but chance.
//!
//! usage: run [--seconds N] [--seed N] [TARGET…]   |   run --again FILE TARGET

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::{Duration, Instant},
};

use bulkhead_fuzz::{Target, targets};

const INPUT_BYTES_MAX: usize = 8 << 10;
/// What is put in besides single bytes.
const WORDS: &[&[u8]] = &[
    b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x80", b"\xf0\x9f\x98\x80", b"\"", b"\\u0000", b"\\ud800", b"{", b"}", b"[", b"]", b",", b":", b"null",
    b"1e999", b"-0", b"9007199254740993", b"@", b"//", b"\\", b"..", b"%00", b"xn--", b"*.", b"[::1]", b"127.1", b"\t", b"\r\n", b" ", b".com", b":443",
    b"\xef\xbb\xbf", b"__proto__", b"toJSON",
];

/// xorshift64*: good enough to choose bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or_default()
    }
}

struct Arguments {
    seconds: u64,
    seed: u64,
    again: Option<String>,
    names: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        seconds: 10,
        seed: std::process::id().into(),
        again: None,
        names: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seconds" => parsed.seconds = value()?.parse().map_err(|_| "--seconds takes a number")?,
            "--seed" => parsed.seed = value()?.parse().map_err(|_| "--seed takes a number")?,
            "--again" => parsed.again = Some(value()?),
            _ if word.starts_with('-') => return Err(format!("{word} is no option")),
            _ => parsed.names.push(word),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let all = targets();
    if let Some(unknown) = arguments.names.iter().find(|name| !all.iter().any(|target| target.name == **name)) {
        eprintln!("{unknown} is no target");
        return ExitCode::from(2);
    }
    let chosen = all.iter().filter(|target| arguments.names.is_empty() || arguments.names.iter().any(|name| name == target.name));
    let mut is_good = true;
    for target in chosen {
        is_good &= match &arguments.again {
            Some(file) => feed(target, &fs::read(file).unwrap_or_default()),
            None => fuzz(target, &arguments),
        };
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn feed(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok()
}

fn fuzz(target: &Target, arguments: &Arguments) -> bool {
    let mut random = Random(arguments.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let seeds = (target.seeds)();
    let (begun, limit) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let mut runs: u64 = 0;
    while begun.elapsed() < limit {
        let input = change(&seeds, &mut random);
        if !feed(target, &input) {
            let file = format!("fuzz/artifacts/{}-{}-{runs}", target.name, arguments.seed);
            let kept = fs::create_dir_all("fuzz/artifacts").and_then(|()| fs::write(&file, &input));
            eprintln!("{}: failed after {runs} runs: {file} ({kept:?})", target.name);
            return false;
        }
        runs += 1;
    }
    println!("{}: {runs} runs in {} s without a finding (seed {})", target.name, arguments.seconds, arguments.seed);
    true
}

fn change(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(8) {
        let at = random.below(input.len() + 1);
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next().to_le_bytes()[0],
            2 => input.insert(at, random.next().to_le_bytes()[0]),
            3 if at < input.len() => drop(input.drain(at..(at + 1 + random.below(16)).min(input.len()))),
            4 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let piece = &other[from..(from + random.below(64)).min(other.len())];
                drop(input.splice(at..at, piece.iter().copied()));
            }
            5 => {
                let end = (at + random.below(64)).min(input.len());
                let piece = input[at..end].to_vec();
                drop(input.splice(at..at, piece));
            }
            6 => input.truncate(at),
            _ => drop(input.splice(at..at, WORDS[random.below(WORDS.len())].iter().copied())),
        }
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}
