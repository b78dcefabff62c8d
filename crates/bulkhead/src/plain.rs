//! Text from agents and repositories, made harmless for a terminal: it may not move the cursor, set titles, fill the
//! clipboard, or write right to left over what a person is to decide on (case 28).

/// Takes text in pieces, cut anywhere, and gives back its lines without control sequences.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    state: State,
    line: String,
}

/// Where the text is in an escape sequence.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    /// `ESC [`, until a letter or the like.
    Control,
    /// `ESC ]` and its kind, until BEL or `ESC \`.
    String,
    StringEscape,
}

/// A line is given out when it is this long, so that a stream without line ends needs no memory.
const MAX_LINE: usize = 4096;

impl Plain {
    /// The lines that this piece completes.
    pub(crate) fn push(&mut self, piece: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for c in piece.chars() {
            self.step(c);
            if (c == '\n' && self.state == State::Text) || self.line.len() >= MAX_LINE {
                lines.push(std::mem::take(&mut self.line));
            }
        }
        lines
    }

    /// What is left of a line that never ended.
    pub(crate) fn finish(&mut self) -> Option<String> {
        self.state = State::Text;
        let line = std::mem::take(&mut self.line);
        (!line.is_empty()).then_some(line)
    }

    fn step(&mut self, c: char) {
        self.state = match (self.state, c) {
            (State::Text, '\x1b') => State::Escape,
            (State::Text, '\u{9b}') => State::Control,
            (State::Text, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => State::String,
            (State::Text, _) => {
                if !is_harmful(c) {
                    self.line.push(c);
                }
                State::Text
            }
            (State::Escape, '[') => State::Control,
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::String,
            (State::Escape, ' '..='/') => State::Escape,
            (State::Control, '@'..='~') | (State::String, '\x07' | '\u{9c}') => State::Text,
            // A line end inside a sequence means that it was none: nothing after it may be swallowed.
            (State::Escape | State::Control, _) if c == '\n' || !(' '..='?').contains(&c) => {
                State::Text
            }
            (State::Control, _) => State::Control,
            (State::Escape, _) | (State::StringEscape, '\\') => State::Text,
            (State::String, '\x1b') => State::StringEscape,
            (State::String | State::StringEscape, '\n') => State::Text,
            (State::String | State::StringEscape, _) => State::String,
        };
    }
}

fn is_harmful(c: char) -> bool {
    let reorders =
        matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    (c.is_control() && c != '\t') || reorders
}

/// A short text as one line.
pub(crate) fn line(text: &str) -> String {
    let mut plain = Plain::default();
    let mut lines = plain.push(text);
    lines.extend(plain.finish());
    lines.join(" ")
}

/// A text with its lines kept.
pub(crate) fn text(text: &str) -> String {
    let mut plain = Plain::default();
    let mut lines = plain.push(text);
    lines.extend(plain.finish());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Plain, line, text};

    const HOSTILE: &str = "a\x1b[31mred\x1b[0m\x1b]52;c;ZXZpbA==\x07b\x1b]0;title\x1b\\c\x1b[?1049hd\u{9b}2Je\u{202e}f\r\n\
                           \x1bPq\x1b\\g\x1b(Bh\u{0}i\tj\n";

    #[test]
    fn case_28_control_sequences_are_gone() {
        assert_eq!(text(HOSTILE), "aredbcdef\nghi\tj");
        assert_eq!(line("two\nlines\x1b[2K"), "two lines");
    }

    #[test]
    fn case_28_cut_at_every_place_gives_the_same() {
        let whole = Plain::default().push(HOSTILE);
        for at in (0..HOSTILE.len()).filter(|at| HOSTILE.is_char_boundary(*at)) {
            let (a, b) = HOSTILE.split_at(at);
            let mut plain = Plain::default();
            let mut lines = plain.push(a);
            lines.extend(plain.push(b));
            assert_eq!(lines, whole, "cut at {at}");
        }
    }

    #[test]
    fn case_28_an_unfinished_sequence_swallows_at_most_its_line() {
        assert_eq!(text("a\x1b]0;never ends\nb"), "a\nb");
        assert_eq!(text("a\x1b[31\nb"), "a\nb");
    }

    #[test]
    fn case_63_a_line_without_end_is_given_out_in_pieces() {
        let lines = Plain::default().push(&"x".repeat(10_000));
        assert_eq!(lines.len(), 2);
    }
}
