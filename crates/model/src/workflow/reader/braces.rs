//! Where in the file a placeholder stands. The tree knows where a text begins, and not how its lines were
//! folded, so the place is looked up in the file's own text.

use super::{Field, Reader};
use crate::workflow::{error::Place, node::Value};

impl Reader<'_> {
    /// The place in the file of the `count`th (from 0) pair of opening braces in a text; the text's own
    /// place where it cannot be found (behind an alias, or written with escapes).
    pub(crate) fn braces(&self, field: &Field<'_>, count: usize) -> Place {
        let start = field.node.place;
        let Value::Text(text) = &field.node.value else {
            return start;
        };
        let line = usize::try_from(start.line).unwrap_or(usize::MAX);
        let mut lines = self.source.split('\n').enumerate().skip(line - 1);
        let mut left = count;
        let height = text.lines().count() + 2;
        for (index, line) in lines.by_ref().take(height) {
            for (column, _) in line.match_indices("{{") {
                let before = line[..column].chars().count() as u64 + 1;
                if index as u64 + 1 == start.line && before < start.column {
                    continue;
                }
                if left == 0 {
                    let rest = line[column..].trim_end().trim_end_matches(['"', '\'']);
                    let place = Place {
                        line: index as u64 + 1,
                        column: before,
                    };
                    let word = rest.split("}}").next().unwrap_or(rest);
                    return if text.contains(word) { place } else { start };
                }
                left -= 1;
            }
        }
        start
    }
}
