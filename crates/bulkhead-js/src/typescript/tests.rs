//! H6: TypeScript as it stands in a file, with every place kept.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::{SyntaxError, strip};

/// `⟨` and `⟩` mark what is to become spaces; the rest has to stay where it is.
fn check(marked: &str) {
    let source: String = marked.chars().filter(|c| !"⟨⟩".contains(*c)).collect();
    let mut expected = String::new();
    let mut inside = false;
    for c in marked.chars() {
        match c {
            '⟨' => inside = true,
            '⟩' => inside = false,
            '\n' => expected.push('\n'),
            c if inside => (0..c.len_utf16()).for_each(|_| expected.push(' ')),
            c => expected.push(c),
        }
    }
    let stripped = strip(&source).unwrap();
    // A semicolon may stand where a statement or an element was.
    let same = stripped
        .chars()
        .zip(expected.chars())
        .all(|(is, was)| is == was || (is == ';' && was == ' '));
    assert!(
        same && stripped.chars().count() == expected.chars().count(),
        "{source}\n{stripped}\n{expected}"
    );
}

#[test]
fn h6_types_become_spaces() {
    for marked in [
        "const a⟨: number⟩ = 1",
        "let a⟨!: Map<string, Array<number>>⟩",
        "const f = (a⟨: string⟩, b⟨?: number⟩, ...c⟨: any[]⟩)⟨: Promise<void>⟩ => {}",
        "function f⟨<T extends object = {}>⟩(⟨this: Window, ⟩a⟨?: T⟩)⟨: a is string⟩ { return true }",
        "⟨interface A { b: string }⟩\n⟨type C = { [K in keyof A]: string }⟩\nlet d",
        "⟨export interface A {}⟩\n⟨export type B = A⟩\n⟨declare const x: number⟩\n⟨declare global { var y: string }⟩",
        "⟨import type { A } from './a.ts'⟩\nimport { ⟨type B,⟩ c } from './b.ts'\n⟨export type { D } from './d.ts'⟩\nexport { ⟨type E,⟩ f } from './f.ts'",
        "const a = b⟨ as unknown as string⟩; const c = d⟨!⟩.e⟨!⟩; const f = {}⟨ satisfies object⟩",
        "f⟨<string>⟩(1); new Map⟨<string, number>⟩(); const g = h⟨<number>⟩; a?.b⟨<c>⟩()",
        "⟨abstract⟩ class A⟨<T>⟩ extends B⟨<T>⟩ ⟨implements C, D<T>⟩ {\n  ⟨private readonly⟩ a⟨: T⟩ = 1\n  static ⟨override⟩ b⟨?: number⟩\n  ⟨declare c: string⟩\n  ⟨abstract d(): void⟩\n  ⟨protected⟩ async *e⟨<U>⟩(u⟨: U⟩)⟨: AsyncIterable<U>⟩ {}\n  ⟨[key: string]: unknown⟩\n  #f⟨!: number⟩\n}",
        "⟨function f(a: string): void⟩\n⟨function f(a: number): void⟩\nfunction f(a⟨: any⟩) {}",
        "try {} catch (e⟨: unknown⟩) {}\nfor (const a of b⟨ as string[]⟩) {}",
        "const s = `${a⟨ as string⟩}ä${b⟨!⟩}`; // as string\nconst t = 'a as b'",
        "const [a, { b }]⟨: [number, { b: string }]⟩ = c; const x⟨: 'ä𝄞'⟩ = 1",
        "export default {\n  async onSession(ctx⟨: Context⟩)⟨: Promise<void>⟩ {},\n}⟨ satisfies Plug⟩",
        "let a = ⟨<string>⟩b; const o = { m⟨<T>⟩(x⟨?: T⟩)⟨: void⟩ {}, get n()⟨: number⟩ { return 1 } }",
    ] {
        check(marked);
    }
}

#[test]
fn h6_statements_do_not_grow_together() {
    let stripped = strip("let a = b as any\n(c)\ninterface X {}\n[d]").unwrap();
    assert!(stripped.contains(";"), "{stripped}");
    assert_eq!(stripped, "let a = b;      \n(c)\n;             \n[d]");
    let class = strip("class A { a = 1\n private [b] = 2\n private *c() {} }").unwrap();
    assert_eq!(
        class,
        "class A { a = 1\n ;       [b] = 2\n ;       *c() {} }"
    );
}

#[test]
fn h6_what_is_more_than_types_is_an_error_with_its_place() {
    for (source, line, column, word) in [
        ("let a\n  enum A { B }", 2, 3, "enum"),
        ("namespace N { export const a = 1 }", 1, 1, "namespace"),
        (
            "class A {\n constructor(private a: string) {}\n}",
            2,
            14,
            "parameter property",
        ),
        ("import a = require('a')", 1, 1, "import"),
        ("const x: = 3", 1, 10, ""),
        ("let ä = '𝄞'; let x = )", 1, 23, ""),
    ] {
        let SyntaxError {
            message,
            line: is_line,
            column: is_column,
        } = strip(source).unwrap_err();
        assert_eq!((is_line, is_column), (line, column), "{source}: {message}");
        assert!(message.contains(word), "{message}");
    }
}
