//! What a list of system calls is made of.

/// Calls that are allowed whatever their arguments, and what they are there for.
#[derive(Debug)]
pub struct Group {
    /// Read by people, and by the tests that demand it.
    pub why: &'static str,
    pub calls: &'static [i64],
}

/// A test of one argument's low 32 bits.
#[derive(Debug, PartialEq, Eq)]
pub struct Argument {
    pub index: u8,
    pub test: Test,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Test {
    Is(u64),
    IsNot(u64),
    Masked { mask: u64, value: u64 },
}

/// Calls that are allowed when, in at least one of the alternatives, every argument passes its test.
#[derive(Debug)]
pub struct Checked {
    /// Read by people, and by the tests that demand it.
    pub why: &'static str,
    pub calls: &'static [i64],
    pub any_of: &'static [&'static [Argument]],
}

pub const fn is(index: u8, value: u64) -> Argument {
    Argument {
        index,
        test: Test::Is(value),
    }
}

pub const fn is_not(index: u8, value: u64) -> Argument {
    Argument {
        index,
        test: Test::IsNot(value),
    }
}

pub const fn masked(index: u8, mask: u64, value: u64) -> Argument {
    Argument {
        index,
        test: Test::Masked { mask, value },
    }
}
