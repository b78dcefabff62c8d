//! H6: TypeScript as it stands in a file, with every place kept.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::{SyntaxError, strip};

/// What is wrong with the outcome, if anything. `⟨` and `⟩` mark what is to become spaces; the rest has to stay where it is.
fn difference(marked: &str) -> Option<String> {
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
    let stripped = match strip(&source) {
        Ok(stripped) => stripped,
        Err(error) => return Some(format!("{source}\n{error:?}")),
    };
    // A semicolon may stand where a statement or an element was.
    let same = |(is, was): (char, char)| is == was || (is == ';' && was == ' ');
    let is_same = stripped.chars().count() == expected.chars().count()
        && stripped.chars().zip(expected.chars()).all(same);
    (!is_same).then(|| format!("{source}\n{stripped}\n{expected}"))
}

#[test]
fn h6_types_become_spaces() {
    let marked = [
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
        "export ⟨abstract⟩ class A { ⟨abstract get a(): string;⟩ ⟨constructor(a: string);⟩ constructor(a⟨: any⟩) {} }",
        "export default ⟨abstract⟩ class {}",
        "⟨export function f(a: string): void⟩\nexport function f(a⟨: any⟩) {}\n⟨export default function g(): void⟩\nexport default function g() {}",
        "const f = async ⟨<T,>⟩(x⟨: T⟩)⟨: Promise<T>⟩ => x; const g = ⟨<const T>⟩(x⟨: T⟩) => x",
        "import d, { ⟨type A, ⟩b, ⟨type C⟩ } from './a.ts'\nimport { ⟨type E⟩ } from './e.ts'\n⟨export type * from './f.ts'⟩",
        "function f(⟨this: X⟩) { return ⟨<any>⟩this }\nfunction isA(a⟨: unknown⟩)⟨: asserts a is string⟩ {}",
        "class A { a⟨?⟩; ['b']⟨?: string⟩ = 1; c⟨?⟩() {}; accessor d⟨: string⟩ = ''; static ⟨readonly⟩ #e⟨: number⟩ = 1; async⟨: string⟩; get⟨: number⟩ = 1 }",
        "⟨declare module 'x' { export const a: string }⟩\n⟨declare function f(): void⟩\n⟨declare class A { b: string }⟩\n⟨declare enum E { F }⟩\n⟨declare namespace N { const a: 1 }⟩",
        "const a = b⟨!⟩[0]⟨!⟩.c(); a⟨!⟩ += 1; const { d = e⟨!⟩ } = f⟨ as any⟩; if (a⟨ as boolean⟩) {}",
        "label: for (const [k, v] of Object.entries(x⟨ as Record<string, number>⟩)) { continue label }",
        "const t = x⟨ satisfies Y⟩ ? y⟨ as Z⟩ : z⟨!⟩; const u = (x⟨ as any⟩).y; const w = `${x⟨ as string⟩}`",
        "let a = ⟨<string>⟩b; const o = { m⟨<T>⟩(x⟨?: T⟩)⟨: void⟩ {}, get n()⟨: number⟩ { return 1 } }",
    ];
    let different: Vec<String> = marked.into_iter().filter_map(difference).collect();
    assert!(different.is_empty(), "{}", different.join("\n\n"));
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
