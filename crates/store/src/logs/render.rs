//! Raw output as text that is safe on a terminal and in a page (case 28).
//!
//! ```text
//!            ESC            [           letter
//!   ground ──────▶ escape ─────▶ csi ───────────▶ ground    colours pass, all else is dropped
//!      ▲             │  ] P X ^ _
//!      │             └──────────▶ string                     titles, clipboard, device strings: dropped
//!      └── BEL, ESC \, a new line, or too long ──┘
//! ```
//!
//! Colours and weights (SGR) may pass, without "conceal". Every other sequence is dropped, also in the 8-bit
//! forms; lone control characters become visible signs; a lone carriage return starts a new line, so
//! nothing can be written over; invisible direction marks and bytes that are not UTF-8 become U+FFFD. A
//! sequence that never ends hides at most its own line. What was kept stays raw: this is only for showing.

/// What becomes of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    Keep,
    Drop,
}

/// A renderer of one stream. However the input is cut, the text is the same.
#[derive(Debug)]
pub struct Renderer {
    colours: Colours,
    state: State,
    /// The beginning of a character whose end is in the next chunk.
    partial: Vec<u8>,
    after_return: bool,
    coloured: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Ground,
    Escape,
    /// After `ESC` and an intermediate such as `(`: one more character belongs to it.
    Intermediate,
    Csi(String),
    /// Inside a string; so many characters are dropped.
    String {
        dropped: usize,
    },
    /// An escape inside a string: `\` ends it.
    StringEscape {
        dropped: usize,
    },
}

/// The longest sequence that is waited for; a longer one is no sequence of an honest program.
const MAX_CSI: usize = 64;
const MAX_STRING: usize = 4096;

impl Renderer {
    pub const fn new(colours: Colours) -> Self {
        Self {
            colours,
            state: State::Ground,
            partial: Vec::new(),
            after_return: false,
            coloured: false,
        }
    }

    /// Appends what the chunk shows.
    pub fn push(&mut self, chunk: &[u8], out: &mut String) {
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(chunk);
        let mut rest = joined.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.text(text, out),
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.text(std::str::from_utf8(good).unwrap_or_default(), out);
                    let Some(len) = error.error_len() else {
                        self.partial = bad.to_vec();
                        return;
                    };
                    self.char(char::REPLACEMENT_CHARACTER, out);
                    rest = &bad[len..];
                }
            }
        }
    }

    /// The output is over: what was cut is shown as such, and colours end.
    pub fn finish(&mut self, out: &mut String) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.char(char::REPLACEMENT_CHARACTER, out);
        }
        if std::mem::take(&mut self.after_return) {
            out.push('\n');
        }
        self.state = State::Ground;
        if std::mem::take(&mut self.coloured) {
            out.push_str("\u{1b}[0m");
        }
    }

    fn text(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            self.char(c, out);
        }
    }

    fn char(&mut self, c: char, out: &mut String) {
        self.state = match std::mem::replace(&mut self.state, State::Ground) {
            State::Ground => self.ground(c, out),
            State::Escape => self.escape(c, out),
            State::Intermediate if c >= ' ' => State::Ground,
            State::Csi(sequence) => self.csi(sequence, c, out),
            State::String { dropped } => self.string(dropped, c, out),
            State::StringEscape { .. } if c == '\\' => State::Ground,
            State::StringEscape { dropped } => self.string(dropped, c, out),
            State::Intermediate => self.ground(c, out),
        };
    }

    fn ground(&mut self, c: char, out: &mut String) -> State {
        if std::mem::take(&mut self.after_return) {
            out.push('\n');
            if c == '\n' {
                return State::Ground;
            }
        }
        match c {
            '\u{1b}' => return State::Escape,
            '\u{9b}' => return State::Csi(String::new()),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => return State::String { dropped: 0 },
            '\r' => self.after_return = true,
            '\n' | '\t' => out.push(c),
            _ => out.push(shown(c)),
        }
        State::Ground
    }

    fn escape(&mut self, c: char, out: &mut String) -> State {
        match c {
            '[' => State::Csi(String::new()),
            ']' | 'P' | 'X' | '^' | '_' => State::String { dropped: 0 },
            '\u{1b}' => State::Escape,
            ' '..='/' => State::Intermediate,
            '0'..='~' => State::Ground,
            // Not a sequence at all: a new line or the like counts.
            _ => self.ground(c, out),
        }
    }

    fn csi(&mut self, mut sequence: String, c: char, out: &mut String) -> State {
        match c {
            ' '..='?' if sequence.len() < MAX_CSI => {
                sequence.push(c);
                State::Csi(sequence)
            }
            ' '..='?' => State::Ground,
            'm' => {
                self.colour(&sequence, out);
                State::Ground
            }
            '@'..='~' => State::Ground,
            _ => self.ground(c, out),
        }
    }

    fn string(&mut self, dropped: usize, c: char, out: &mut String) -> State {
        match c {
            '\u{7}' | '\u{9c}' | '\u{18}' | '\u{1a}' => State::Ground,
            '\u{1b}' => State::StringEscape { dropped },
            '\n' | '\r' => self.ground(c, out),
            _ if dropped >= MAX_STRING => self.ground(c, out),
            _ => State::String {
                dropped: dropped + 1,
            },
        }
    }

    fn colour(&mut self, sequence: &str, out: &mut String) {
        if self.colours == Colours::Drop {
            return;
        }
        let Some(kept) = harmless_colours(sequence) else {
            return;
        };
        self.coloured = !matches!(kept.as_str(), "" | "0");
        out.push_str("\u{1b}[");
        out.push_str(&kept);
        out.push('m');
    }
}

/// The parameters of an SGR without conceal (8); none where they are not plain numbers.
fn harmless_colours(sequence: &str) -> Option<String> {
    let mut kept = Vec::new();
    let mut parameters = sequence.split(';');
    while let Some(parameter) = parameters.next() {
        if !parameter.bytes().all(|b| b.is_ascii_digit() || b == b':') {
            return None;
        }
        if parameter != "8" {
            kept.push(parameter);
        }
        // An extended colour brings its own parameters, among which 8 is only a number.
        if matches!(parameter, "38" | "48" | "58") {
            let kind = parameters.next()?;
            let values = match kind {
                "5" => 1,
                "2" => 3,
                _ => return None,
            };
            kept.push(kind);
            for _ in 0..values {
                let value = parameters.next()?;
                value.parse::<u8>().ok()?;
                kept.push(value);
            }
        }
    }
    // Nothing left means that only conceal was asked for; an empty list would mean "reset".
    (!kept.is_empty()).then(|| kept.join(";"))
}

/// A character of the ground state as it may be shown.
fn shown(c: char) -> char {
    match c {
        '\0'..='\u{1f}' => {
            char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        // Marks and overrides of direction: text must stand where it was written.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            char::REPLACEMENT_CHARACTER
        }
        _ => c,
    }
}
