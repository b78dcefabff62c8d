//! Reads SPDX licence expressions as crates write them, also with the old `/`.

/// Licences that an Apache-2.0 program may contain without further duties than a notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether the expression can be satisfied with allowed licences alone. What cannot be read is not allowed.
pub(crate) fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words, next: 0 };
    parser.either() == Some(true) && parser.next == parser.words.len()
}

/// Recursive descent: `OR` binds weakest, then `AND`, then `WITH`.
struct Parser<'a> {
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Parser<'a> {
    fn either(&mut self) -> Option<bool> {
        let mut allowed = self.both()?;
        while self.eat("OR") {
            allowed |= self.both()?;
        }
        Some(allowed)
    }

    fn both(&mut self) -> Option<bool> {
        let mut allowed = self.one()?;
        while self.eat("AND") {
            allowed &= self.one()?;
        }
        Some(allowed)
    }

    fn one(&mut self) -> Option<bool> {
        if self.eat("(") {
            let allowed = self.either()?;
            return self.eat(")").then_some(allowed);
        }
        let name = self.word()?;
        if !self.eat("WITH") {
            return Some(ALLOWED.contains(&name));
        }
        let exception = self.word()?;
        Some(ALLOWED.contains(&format!("{name} WITH {exception}").as_str()))
    }

    fn word(&mut self) -> Option<&'a str> {
        let word = *self.words.get(self.next)?;
        self.next += 1;
        Some(word)
    }

    fn eat(&mut self, expected: &str) -> bool {
        let hit = self.words.get(self.next) == Some(&expected);
        self.next += usize::from(hit);
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn a_choice_needs_one_allowed_licence_and_a_sum_needs_all() {
        assert!(is_allowed("MIT OR GPL-3.0"));
        assert!(is_allowed("Apache-2.0/MIT"));
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR MIT"));
        assert!(!is_allowed("MIT AND GPL-3.0"));
        assert!(!is_allowed("GPL-3.0"));
        assert!(!is_allowed("Apache-2.0 WITH Some-exception"));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for broken in ["", "MIT OR", "(MIT", "MIT MIT", "AND MIT", "MIT)"] {
            assert!(!is_allowed(broken), "{broken:?}");
        }
    }
}
