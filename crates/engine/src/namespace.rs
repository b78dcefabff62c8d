//! A tree of host functions, as one global object that nobody can change.

use std::rc::Rc;

use crate::{EngineError, Isolate, Native, error::catch, functions::make, isolate::State};

/// An object of host functions and further objects.
#[derive(Debug, Default)]
pub struct Namespace {
    entries: Vec<(String, Entry)>,
}

#[derive(Debug)]
pub enum Entry {
    Function(Native),
    Namespace(Namespace),
    /// A function that has functions as its properties.
    Both(Native, Namespace),
}

impl Namespace {
    pub fn push(&mut self, name: &str, entry: Entry) {
        self.entries.push((name.to_owned(), entry));
    }

    /// Puts a function at the end of a path, making the objects on the way.
    pub fn insert(&mut self, path: &str, function: Native) {
        match path.split_once('.') {
            None => self.push(path, Entry::Function(function)),
            Some((first, rest)) => self.below(first).insert(rest, function),
        }
    }

    fn below(&mut self, name: &str) -> &mut Namespace {
        let known = self
            .entries
            .iter()
            .position(|(known, entry)| known == name && matches!(entry, Entry::Namespace(_)));
        let index = known.unwrap_or_else(|| {
            self.push(name, Entry::Namespace(Self::default()));
            self.entries.len() - 1
        });
        match &mut self.entries[index].1 {
            Entry::Namespace(namespace) | Entry::Both(_, namespace) => namespace,
            Entry::Function(_) => unreachable!("it was made, or found, as an object"),
        }
    }
}

impl Isolate {
    /// Makes a global object of functions. Nothing in it can be changed, nor can it be taken away.
    pub fn install_frozen(&mut self, name: &str, namespace: Namespace) -> Result<(), EngineError> {
        let state = Rc::clone(self.state());
        self.with(|scope| {
            catch(scope, |scope| {
                let nothing = v8::null(scope).into();
                let object = v8::Object::with_prototype_and_properties(scope, nothing, &[], &[]);
                fill(scope, &state, object, namespace)?;
                let global = scope.get_current_context().global(scope);
                let name = v8::String::new(scope, name)?;
                let fixed = v8::PropertyAttribute::READ_ONLY
                    | v8::PropertyAttribute::DONT_DELETE
                    | v8::PropertyAttribute::DONT_ENUM;
                global.define_own_property(scope, name.into(), object.into(), fixed)
            })
        })?;
        Ok(())
    }

    /// Puts a host function where there is a function of the engine's own: `Math.random`, say.
    pub fn replace(&mut self, path: &[&str], function: Native) -> Result<(), EngineError> {
        let state = Rc::clone(self.state());
        let Some((last, way)) = path.split_last() else {
            return Ok(());
        };
        self.with(|scope| {
            catch(scope, |scope| {
                let mut object = scope.get_current_context().global(scope);
                for name in way {
                    let name = v8::String::new(scope, name)?;
                    object = object.get(scope, name.into())?.to_object(scope)?;
                }
                let name = v8::String::new(scope, last)?;
                let function = make(scope, &state, function)?;
                function.set_name(name);
                let attributes = v8::PropertyAttribute::DONT_ENUM;
                object.define_own_property(scope, name.into(), function.into(), attributes)
            })
        })?;
        Ok(())
    }
}

fn fill(
    scope: &mut v8::PinScope<'_, '_>,
    state: &Rc<State>,
    object: v8::Local<v8::Object>,
    namespace: Namespace,
) -> Option<()> {
    for (name, entry) in namespace.entries {
        let name = v8::String::new(scope, &name)?;
        let (function, inner) = match entry {
            Entry::Function(function) => (Some(function), None),
            Entry::Namespace(inner) => (None, Some(inner)),
            Entry::Both(function, inner) => (Some(function), Some(inner)),
        };
        let value: v8::Local<v8::Object> = match function {
            Some(function) => {
                let function = make(scope, state, function)?;
                function.set_name(name);
                function.into()
            }
            None => {
                let nothing = v8::null(scope).into();
                v8::Object::with_prototype_and_properties(scope, nothing, &[], &[])
            }
        };
        match inner {
            Some(inner) => fill(scope, state, value, inner)?,
            None => {
                value.set_integrity_level(scope, v8::IntegrityLevel::Frozen)?;
            }
        }
        object.create_data_property(scope, name.into(), value.into())?;
    }
    object.set_integrity_level(scope, v8::IntegrityLevel::Frozen)?;
    Some(())
}
