//! TypeScript without a build step (H6): types are replaced by spaces, so every line and column stays what it was.
//!
//! What TypeScript has beyond types, and so would have to become other code (`enum`, `namespace` with values,
//! parameter properties, `import x = …`), is an error that says what to write instead.

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    AccessorProperty, Class, ClassElement, Declaration, ExportDefaultDeclarationKind,
    ExportSpecifier, FormalParameter, ImportDeclarationSpecifier, ImportOrExportKind,
    MethodDefinition, MethodDefinitionType, PropertyDefinition, PropertyDefinitionType, Statement,
    TSAsExpression, TSNonNullExpression, TSSatisfiesExpression, TSThisParameter, TSTypeAnnotation,
    TSTypeAssertion, TSTypeParameterDeclaration, TSTypeParameterInstantiation, VariableDeclarator,
};
use oxc_ast_visit::{Visit, walk};
use oxc_parser::Parser;
use oxc_span::{GetSpan, SourceType, Span};

/// A place that TypeScript's grammar, or this module, does not take; line and column count from one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    pub message: String,
    pub line: u32,
    pub column: u32,
}

/// The JavaScript of a TypeScript module.
///
/// # Errors
/// Where the source is no TypeScript, or holds more of it than types.
pub fn strip(source: &str) -> Result<String, SyntaxError> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, SourceType::ts()).parse();
    if let Some(error) = parsed.diagnostics.iter().next() {
        let at = error
            .labels
            .iter()
            .next()
            .map_or(0, |label| label.offset() as usize);
        return Err(error_at(source, at, error.message.to_string()));
    }
    let mut strip = Strip {
        source,
        edits: vec![],
        error: None,
    };
    strip.visit_program(&parsed.program);
    match strip.error {
        Some((at, message)) => Err(error_at(source, at, message)),
        None => Ok(apply(source, strip.edits)),
    }
}

fn error_at(source: &str, at: usize, message: String) -> SyntaxError {
    let before = source.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[start..].encode_utf16().count() + 1;
    SyntaxError {
        message,
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column).unwrap_or(u32::MAX),
    }
}

/// What becomes of a range of the source: spaces, the first of which may be a character that ends a statement.
struct Edit {
    start: usize,
    end: usize,
    first: char,
}

/// Line breaks stay, and everything else is as wide as it was, in the units that V8 counts columns in.
fn apply(source: &str, mut edits: Vec<Edit>) -> String {
    // Of two that begin at the same place, the longer one; those inside it are skipped below.
    edits.sort_by_key(|edit| (edit.start, std::cmp::Reverse(edit.end)));
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    for edit in edits.iter().filter(|edit| edit.start < edit.end) {
        if edit.start < at {
            continue;
        }
        out.push_str(&source[at..edit.start]);
        let mut first = Some(edit.first);
        for c in source[edit.start..edit.end].chars() {
            match c {
                '\n' | '\r' | '\u{2028}' | '\u{2029}' => out.push(c),
                c => (0..c.len_utf16()).for_each(|_| out.push(first.take().unwrap_or(' '))),
            }
        }
        at = edit.end;
    }
    out.push_str(&source[at..]);
    out
}

struct Strip<'s> {
    source: &'s str,
    edits: Vec<Edit>,
    error: Option<(usize, String)>,
}

fn range(span: Span) -> (usize, usize) {
    (span.start as usize, span.end as usize)
}

impl Strip<'_> {
    fn blank(&mut self, start: usize, end: usize) {
        self.edits.push(Edit {
            start,
            end,
            first: ' ',
        });
    }

    fn blank_span(&mut self, span: Span) {
        let (start, end) = range(span);
        self.blank(start, end);
    }

    /// Blanks what stands where a statement or a class element may: the semicolon keeps what comes before it from
    /// going on with what comes after it.
    fn blank_statement(&mut self, span: Span) {
        let (start, end) = range(span);
        self.edits.push(Edit {
            start,
            end,
            first: ';',
        });
    }

    /// Blanks the end of an expression. Where the next line could go on with the expression, which the type kept
    /// it from, a semicolon keeps it.
    fn blank_tail(&mut self, start: usize, end: usize) {
        let rest = &self.source[end..];
        let next = rest.trim_start();
        let gap = &rest[..rest.len() - next.len()];
        let goes_on = gap.contains('\n') && next.starts_with(['(', '[', '`', '+', '-', '/']);
        let first = if goes_on { ';' } else { ' ' };
        self.edits.push(Edit { start, end, first });
    }

    /// Blanks one item of a list, with the comma after it.
    fn blank_item(&mut self, span: Span) {
        let (start, mut end) = range(span);
        let rest = &self.source[end..];
        let next = self.skip_trivia(end);
        if rest
            .get(next - end..)
            .is_some_and(|rest| rest.starts_with(','))
        {
            end = next + 1;
        }
        self.blank(start, end);
    }

    fn refuse(&mut self, span: Span, message: &str) {
        let at = span.start as usize;
        if self.error.as_ref().is_none_or(|(before, _)| at < *before) {
            self.error = Some((at, message.to_owned()));
        }
    }

    /// Blanks the one character, `?` or `!`, that stands between two places, comments aside.
    fn blank_mark(&mut self, from: usize, mark: char) {
        let mut at = self.skip_trivia(from);
        // The end of a computed key is before its bracket.
        if self.source[at..].starts_with(']') {
            at = self.skip_trivia(at + 1);
        }
        if self.source[at..].starts_with(mark) {
            self.blank(at, at + mark.len_utf8());
        }
    }

    /// Where the next token begins.
    fn skip_trivia(&self, mut at: usize) -> usize {
        loop {
            let rest = &self.source[at..];
            let trimmed = rest.trim_start();
            at += rest.len() - trimmed.len();
            let comment = if trimmed.starts_with("//") {
                trimmed.find('\n')
            } else if trimmed.starts_with("/*") {
                trimmed.find("*/").map(|end| end + 2)
            } else {
                return at;
            };
            at += comment.unwrap_or(trimmed.len());
        }
    }

    /// Blanks the words among `words` that stand before a class element's key, and passes over its other words.
    fn blank_modifiers(&mut self, from: usize, key: usize, words: &[&str]) {
        let mut at = self.skip_trivia(from);
        let mut is_first = true;
        while at < key {
            let rest = &self.source[at..key];
            let len = rest
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(rest.len());
            let word = &rest[..len];
            if word.is_empty() {
                return;
            }
            if words.contains(&word) {
                let first = if is_first { ';' } else { ' ' };
                self.edits.push(Edit {
                    start: at,
                    end: at + len,
                    first,
                });
            }
            is_first = false;
            at = self.skip_trivia(at + len);
        }
    }

    /// The word stands where the class begins, or before that where the class is exported.
    fn blank_abstract(&mut self, class: &Class<'_>) {
        const WORD: &str = "abstract";
        let from = Self::modifiers_from(class.span, class.decorators.last().map(GetSpan::span));
        let at = self.skip_trivia(from);
        let at = match self.source[at..].starts_with(WORD) {
            true => Some(at),
            false => self.source[..at].rfind(WORD),
        };
        if let Some(at) = at {
            self.blank(at, at + WORD.len());
        }
    }

    fn modifiers_from(span: Span, decorators: Option<Span>) -> usize {
        decorators.map_or(span.start as usize, |last| last.end as usize)
    }

    /// Whether a declaration is of types only, and gone.
    fn declaration(&mut self, declaration: &Declaration<'_>, whole: Span) -> bool {
        let gone = match declaration {
            Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => true,
            Declaration::VariableDeclaration(it) => it.declare,
            Declaration::FunctionDeclaration(it) => it.declare || it.body.is_none(),
            Declaration::ClassDeclaration(it) => it.declare,
            Declaration::TSGlobalDeclaration(_) | Declaration::TSExternalModuleDeclaration(_) => {
                true
            }
            Declaration::TSEnumDeclaration(it) if it.declare => true,
            Declaration::TSNamespaceDeclaration(it) if it.declare => true,
            Declaration::TSEnumDeclaration(it) => {
                self.refuse(
                    it.span,
                    "an enum is more than a type: use an object `as const`",
                );
                true
            }
            Declaration::TSNamespaceDeclaration(it) => {
                self.refuse(it.span, "a namespace is more than a type: use a module");
                true
            }
            Declaration::TSImportEqualsDeclaration(it) => {
                self.refuse(
                    it.span,
                    "`import x = …` is no JavaScript: use `import x from`",
                );
                true
            }
        };
        if gone {
            self.blank_statement(whole);
        }
        gone
    }

    fn specifiers(&mut self, specifiers: &[ExportSpecifier<'_>]) {
        for specifier in specifiers {
            if specifier.export_kind == ImportOrExportKind::Type {
                self.blank_item(specifier.span);
            }
        }
    }

    /// Whether a statement is gone.
    fn statement(&mut self, statement: &Statement<'_>) -> bool {
        let type_only = |kind| kind == ImportOrExportKind::Type;
        let gone = match statement {
            Statement::ImportDeclaration(it) => {
                for specifier in it.specifiers.iter().flatten() {
                    if let ImportDeclarationSpecifier::ImportSpecifier(one) = specifier
                        && type_only(one.import_kind)
                    {
                        self.blank_item(one.span);
                    }
                }
                type_only(it.import_kind)
            }
            Statement::ExportAllDeclaration(it) => type_only(it.export_kind),
            Statement::ExportNamedDeclaration(it) => {
                self.specifiers(&it.specifiers);
                type_only(it.export_kind)
            }
            Statement::ExportFromDeclaration(it) => {
                self.specifiers(&it.specifiers);
                type_only(it.export_kind)
            }
            Statement::ExportDeclaration(it) => return self.declaration(&it.declaration, it.span),
            Statement::ExportDefaultDeclaration(it) => match &it.declaration {
                ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
                ExportDefaultDeclarationKind::FunctionDeclaration(it) => it.body.is_none(),
                _ => false,
            },
            Statement::TSExportAssignment(it) => {
                self.refuse(
                    it.span,
                    "`export =` is no JavaScript module: use `export default`",
                );
                true
            }
            Statement::TSNamespaceExportDeclaration(_) => true,
            statement => match statement.as_declaration() {
                Some(declaration) => return self.declaration(declaration, statement.span()),
                None => false,
            },
        };
        if gone {
            self.blank_statement(statement.span());
        }
        gone
    }
}

const METHOD_WORDS: &[&str] = &["public", "private", "protected", "override"];
const PROPERTY_WORDS: &[&str] = &[
    "public",
    "private",
    "protected",
    "override",
    "readonly",
    "declare",
];

impl<'a> Visit<'a> for Strip<'_> {
    fn visit_statement(&mut self, it: &Statement<'a>) {
        if !self.statement(it) {
            walk::walk_statement(self, it);
        }
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        // The span of a return type, unlike others, may begin after the colon.
        let (mut start, end) = range(it.span);
        if !self.source[start..].starts_with(':')
            && let Some(colon) = self.source[..start].rfind(':')
        {
            start = colon;
        }
        self.blank(start, end);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_tail(it.expression.span().end as usize, it.span.end as usize);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_tail(it.expression.span().end as usize, it.span.end as usize);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_tail(it.expression.span().end as usize, it.span.end as usize);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        self.blank(it.span.start as usize, it.expression.span().start as usize);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        self.blank_item(it.span);
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if it.accessibility.is_some() || it.readonly || it.r#override {
            let words =
                "a parameter property is more than a type: declare the property and assign it";
            self.refuse(it.span, words);
        }
        if it.optional {
            self.blank_mark(it.pattern.span().end as usize, '?');
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            self.blank_mark(it.id.span().end as usize, '!');
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        if it.r#abstract {
            self.blank_abstract(it);
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let before = &self.source[..first.span().start as usize];
            let word = before.rfind("implements").unwrap_or(before.len());
            self.blank(word, last.span().end as usize);
        }
        let is_gone = |element: &&ClassElement<'a>| match element {
            ClassElement::TSIndexSignature(_) => true,
            ClassElement::MethodDefinition(it) => {
                it.r#type == MethodDefinitionType::TSAbstractMethodDefinition
                    || it.value.body.is_none()
            }
            ClassElement::PropertyDefinition(it) => {
                it.declare || it.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition
            }
            _ => false,
        };
        for element in it.body.body.iter().filter(is_gone) {
            self.blank_statement(element.span());
        }
        walk::walk_class(self, it);
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        let from = Self::modifiers_from(it.span, it.decorators.last().map(GetSpan::span));
        self.blank_modifiers(from, it.key.span().start as usize, METHOD_WORDS);
        if it.optional {
            self.blank_mark(it.key.span().end as usize, '?');
        }
        walk::walk_method_definition(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        let from = Self::modifiers_from(it.span, it.decorators.last().map(GetSpan::span));
        self.blank_modifiers(from, it.key.span().start as usize, PROPERTY_WORDS);
        if it.optional || it.definite {
            let mark = if it.optional { '?' } else { '!' };
            self.blank_mark(it.key.span().end as usize, mark);
        }
        walk::walk_property_definition(self, it);
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        let from = Self::modifiers_from(it.span, it.decorators.last().map(GetSpan::span));
        self.blank_modifiers(from, it.key.span().start as usize, PROPERTY_WORDS);
        walk::walk_accessor_property(self, it);
    }
}

#[cfg(test)]
mod tests;
