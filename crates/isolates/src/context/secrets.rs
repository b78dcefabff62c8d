//! The secrets that an invocation was given, to take them out of what it says (E15).

use std::{
    borrow::Cow,
    fmt,
    sync::{PoisonError, RwLock},
};

use bulkhead_mask::{Masker, TooManySecrets};
use secrecy::{ExposeSecret as _, SecretString};

/// More is no use to a plugin, and each new one costs the building of a masker.
const SECRETS_MAX: usize = 64;

#[derive(Default)]
pub struct SecretRegistry {
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    secrets: Vec<(String, SecretString)>,
    masker: Option<Masker>,
}

#[derive(Debug, thiserror::Error)]
pub enum SecretNotKept {
    #[error("an invocation has at most {SECRETS_MAX} secrets")]
    TooMany,
    #[error("a secret cannot be hidden, so it is not given")]
    Masker(#[from] TooManySecrets),
}

impl SecretRegistry {
    /// From now on the value is hidden. Where this fails, the value must not be given to the plugin.
    pub fn add(&self, name: &str, value: SecretString) -> Result<(), SecretNotKept> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let value_is = |other: &SecretString| other.expose_secret() == value.expose_secret();
        if known.secrets.iter().any(|(_, other)| value_is(other)) {
            return Ok(());
        }
        if known.secrets.len() >= SECRETS_MAX {
            return Err(SecretNotKept::TooMany);
        }
        known.secrets.push((name.to_owned(), value));
        let pairs = known
            .secrets
            .iter()
            .map(|(name, value)| (name.as_str(), value));
        known.masker = Some(Masker::new(pairs)?);
        Ok(())
    }

    /// The text without the secrets.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match &known.masker {
            Some(masker) => masker.mask_text(text),
            None => Cow::Borrowed(text),
        }
    }
}

impl fmt::Debug for SecretRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "SecretRegistry({} secrets)", known.secrets.len())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    /// E15: once given, a secret is in no text, in whichever of its forms.
    #[test]
    fn e15_a_secret_that_was_given_is_taken_out() {
        let secrets = SecretRegistry::default();
        assert_eq!(secrets.mask("canary-0123"), "canary-0123");
        secrets.add("key", "canary-0123".into()).unwrap();
        secrets.add("other", "second canary".into()).unwrap();
        assert_eq!(secrets.mask("a canary-0123!"), "a [masked:key]!");
        assert_eq!(secrets.mask("?k=second%20canary"), "?k=[masked:other]");
        secrets.add("key", "rotated-0456".into()).unwrap();
        assert_eq!(secrets.mask("rotated-0456"), "[masked:key]");
        assert_eq!(
            secrets.mask("canary-0123"),
            "[masked:key]",
            "the plugin still has it"
        );
    }

    #[test]
    fn there_is_a_most_of_secrets() {
        let secrets = SecretRegistry::default();
        for n in 0..SECRETS_MAX {
            secrets
                .add(&n.to_string(), format!("canary-{n:04}").into())
                .unwrap();
        }
        let refused = secrets.add("more", "canary-more".into()).unwrap_err();
        assert!(matches!(refused, SecretNotKept::TooMany));
        assert!(secrets.add("0", "canary-0000".into()).is_ok());
    }
}
